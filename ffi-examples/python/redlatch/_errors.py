"""The errors: one for each thing that a caller does differently."""

from __future__ import annotations

import ctypes
import enum
from typing import Dict, Optional, Type, Union

from ._library import library

OK = 0
BUSY = -1
UNCONFIRMED = -5
NO_QUORUM = -6
CONNECTION = -11
SERVER = -12
INVALID_STATE = -14

#: A name is bytes; text is taken as UTF-8.
Name = Union[str, bytes]


class LostReason(enum.Enum):
    """Why a lease ended before its holder released it."""

    #: It ran out before it was renewed: the server was away, the process was paused, or the lease is a timed one.
    EXPIRED = 1
    #: The key, or the permit in it, is gone from the server: deleted, flushed, evicted, forced out, or lost in a
    #: restart.
    DELETED = 2
    #: Another holder's token stands at the key.
    TAKEN = 3
    #: The grant reached its longest hold.
    MAX_HOLD = 4


class RedlatchError(Exception):
    """Whatever redlatch reports."""

    #: The status of the C library, such as -2.
    code: int = 0


class LockTimeout(RedlatchError, TimeoutError):
    """The wait ended before it could be had. Try later, or wait longer.

    The message says if attempts failed meanwhile. With a timeout of 0 the code is -1: it was taken.
    """

    code = -2


class Cancelled(RedlatchError):
    """The wait was ended by its CancelToken."""

    code = -3


class Lost(RedlatchError):
    """The lease ended before its holder released it.

    Work done since was not protected: undo it, or let the resource refuse it by its fencing token.
    """

    code = -4
    #: Why it ended.
    reason: LostReason
    #: The fencing token of the grant that was lost.
    fencing_token: int
    #: The name of the lock or semaphore that was lost, as it was given.
    name: Name


class Unconfirmed(RedlatchError):
    """The server did not confirm the request in time, so its outcome is unknown.

    What it may have left behind is cleaned up in the background, and ends with the lease in any case.
    """

    code = -5


class NoQuorum(RedlatchError):
    """Too few servers of a Redlock granted it, or could be asked. Nothing is held. Try later; a wait goes on trying."""

    code = -6


class NotReplicated(RedlatchError):
    """Too few replicas confirmed the grant, which was given back, or the extension, in the time that was set."""

    code = -7


class LimitMismatch(RedlatchError):
    """Others declare another limit for the semaphore of this name: the message has both. Nothing was granted."""

    code = -8


class KeyConflict(RedlatchError):
    """The key holds something that no lock or semaphore can be; it was left as it is. Use another name or prefix."""

    code = -9


class Unsupported(RedlatchError):
    """This version cannot do what was asked. Nothing was sent."""

    code = -10


class ConnectionFailed(RedlatchError, ConnectionError):
    """The server could not be reached, or no connection to it was free in time. The request was not sent."""

    code = -11


class ServerError(RedlatchError):
    """The server answered with an error: it is not ready, or it does not permit the request."""

    code = -12


class InvalidArgument(RedlatchError, ValueError):
    """An argument or setting cannot work. Nothing was sent or changed."""

    code = -13


class InvalidState(RedlatchError):
    """It cannot do this any more: a guard is to be used that was released. Nothing was sent or changed."""

    code = -14


class Forked(RedlatchError):
    """It was made before a fork(), by the parent. Open a new client in this process."""

    code = -16


class InternalError(RedlatchError):
    """Something went wrong inside redlatch, which is a bug in it: please report it. The outcome is unknown."""

    code = -17


class ThreadFailed(RedlatchError):
    """The operating system gave no thread for the background work. Nothing was sent."""

    code = -18


_CLASSES: Dict[int, Type[RedlatchError]] = {
    error.code: error
    for error in (
        LockTimeout,
        Cancelled,
        Lost,
        Unconfirmed,
        NoQuorum,
        NotReplicated,
        LimitMismatch,
        KeyConflict,
        Unsupported,
        ConnectionFailed,
        ServerError,
        InvalidArgument,
        InvalidState,
        Forked,
        InternalError,
        ThreadFailed,
    )
}
# Somebody else has it, and the call was not to wait.
_CLASSES[BUSY] = LockTimeout
# The interpreter is being ended, and what was asked is closed already.
_CLASSES[-15] = InvalidState


def failure(status: int) -> Optional[RedlatchError]:
    """The error that a call on this thread has just reported, if its status says so."""
    if status == OK:
        return None
    error = _CLASSES.get(status, RedlatchError)(_last_message(status))
    error.code = status
    if isinstance(error, Lost):
        error.reason = LostReason(library.redlatch_last_lost_reason())
    return error


def lost(message: str, reason: int, fencing_token: int, name: Name) -> Lost:
    """A loss that is told by other ways."""
    error = Lost(message)
    error.reason = LostReason(reason)
    error.fencing_token = fencing_token
    error.name = name
    return error


def check(status: int) -> None:
    """Raises what a call on this thread has just reported."""
    error = failure(status)
    if error is not None:
        raise error


def _last_message(status: int) -> str:
    length = library.redlatch_last_error_message(None, 0)
    buffer = ctypes.create_string_buffer(length + 1)
    library.redlatch_last_error_message(buffer, len(buffer))
    message = buffer.value or library.redlatch_status_str(status)
    return str(message.decode("utf-8", "replace"))
