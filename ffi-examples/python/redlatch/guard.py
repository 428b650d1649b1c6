"""A hold of a lock, of permits of a semaphore, or of several locks."""

from __future__ import annotations

import warnings
from ctypes import byref, c_size_t, c_uint64, string_at
from types import TracebackType
from typing import Optional, Tuple, Type

from . import _library as native
from ._arguments import Seconds, encoded, milliseconds, wait
from ._errors import INVALID_STATE, OK, UNCONFIRMED, Lost, LostReason, Name, RedlatchError, check, failure
from ._exit import close_at_exit
from ._handle import Handle, OfThisProcess
from ._waiting import wait_lost

_CLOSED = Handle(native.guard.free)


def _fencing_tokens(handle: Handle, count: int) -> Tuple[int, ...]:
    tokens = (c_uint64 * count)()
    check(native.guard.fencing_tokens(handle, tokens, count, byref(c_size_t())))
    return tuple(tokens)


class Guard(OfThisProcess):
    """A hold of a lock, of permits of a semaphore, or of several locks, which is held as long as all of them are.

    Leave it to a `with` statement, or release() it, from any thread. It is the guard that holds: `lock.acquire()` on a
    line of its own, as with threading.Lock, has released it again at the end of the line. What is neither is released
    when nobody refers to it any more, with a RuntimeWarning, at the latest when the interpreter ends, for at most one
    command timeout; how that went is not told.
    """

    # For a guard that a signal handler kept from being made.
    _handle = _CLOSED

    def __init__(self, handle: Handle, names: Tuple[Name, ...]) -> None:
        self._names = names
        self._fencing_tokens = _fencing_tokens(handle, len(names))
        self._token = str(native.guard.token(handle).decode())
        # Last: one that is not whole does not warn, since nobody has it who could drop it.
        self._handle = handle
        close_at_exit(self)

    @property
    def name(self) -> Name:
        """The name of the lock or semaphore, as it was given: of several locks, the first of `names`."""
        return self._names[0]

    @property
    def names(self) -> Tuple[Name, ...]:
        """Those of all locks that it stands for, as MultiLock.names; one for any other lock, or a semaphore."""
        return self._names

    @property
    def fencing_token(self) -> int:
        """Larger than that of every earlier grant of this name, and never 0. It stays when the hold ends.

        Send it along with each write, and let the resource refuse a token smaller than the largest that it has seen;
        then a holder that does not know yet that it lost the lock can do no harm. Those of a semaphore tell its holders
        apart, but keep none of them off: several hold permits at once by rights. Of several locks it is the first's.
        """
        return self._fencing_tokens[0]

    @property
    def fencing_tokens(self) -> Tuple[int, ...]:
        """Those of all locks that it stands for, in the order of `names`: each resource is sent that of its lock."""
        return self._fencing_tokens

    @property
    def token(self) -> str:
        """The random token that stands for the grant at the key on the server: of several locks, at the first one's."""
        return self._token

    @property
    def is_held(self) -> bool:
        """Whether it is certainly still held. False once it was lost or released, and in a forked child. No I/O."""
        return bool(native.guard.is_held(self._handle))

    @property
    def remaining(self) -> float:
        """How many seconds it is certainly held from now on if nothing renews it; 0 once it is not held. No I/O."""
        return int(native.guard.remaining_ms(self._handle)) / 1000

    @property
    def lost_reason(self) -> Optional[LostReason]:
        """Why the lease was lost; None if it was not. After release() it is what that found. No I/O."""
        reason = native.guard.lost_reason(self._handle)
        return LostReason(reason) if reason else None

    def check(self) -> None:
        """Returns if it is still held: the line to put before each write. No I/O.

        Raises Lost, InvalidState after release(), Forked.
        """
        self._raise_from(native.guard.check(self._handle))

    def extend(self, lease: Seconds) -> None:
        """Makes the lease end that long from now, unless it lasts longer already: set, not added, never shortened.

        One round trip, at most one command timeout. What is renewed goes on being renewed.

        Raises Lost if it is no longer held; InvalidArgument outside 10 ms to 10 years, or beyond the longest hold;
        Unconfirmed, ConnectionFailed or ServerError if the server did not confirm it, and NotReplicated if too few
        replicas did: the lease holds as long as it did before; InvalidState after release(), Forked.
        """
        self._raise_from(native.guard.extend_ms(self._handle, milliseconds(lease, "lease")))

    def wait_lost(self, timeout: Optional[Seconds] = None) -> bool:
        """Waits until it is lost, for at most `timeout` (None: as long as it takes). Returns whether it was. No I/O.

        Ctrl-C ends it. Raises InvalidState after release(), also when another thread releases it meanwhile; Forked.
        """
        error = failure(wait_lost(self._handle, wait(timeout)))
        if error is None or isinstance(error, Lost):
            return error is not None
        raise error

    def release(self) -> None:
        """Releases it and reports how that went. At most two command timeouts.

        Raises Lost if the lease had been lost before; Unconfirmed if it was held until now, but the server did not
        confirm the release, which is then completed in the background; InvalidState if it was released before, Forked.
        """
        self._raise_from(native.guard.release(self._handle))

    def __enter__(self) -> Guard:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], traceback: Optional[TracebackType]
    ) -> None:
        """Releases it if that was not done. Raises Lost (or Forked) unless the body raised something itself.

        A release that the server does not confirm is no error: it was held until now, and is completed in the
        background.
        """
        try:
            status = native.guard.release(self._handle)
        except BaseException:
            # A signal handler raised, perhaps before.
            native.guard.release(self._handle)
            raise
        if status not in (OK, UNCONFIRMED, INVALID_STATE) and error is None:
            self._raise_from(status)

    def __del__(self) -> None:
        if native.guard.is_held(self._handle):
            names = ", ".join(map(repr, self._names))
            message = f"a redlatch guard was dropped while it held {names}: use `with`, or release() it"
            warnings.warn(message, RuntimeWarning, stacklevel=2)

    def __repr__(self) -> str:
        state = "held" if self.is_held else "not held"
        grants = ", ".join(f"{name!r}, fencing token {token}" for name, token in zip(self._names, self._fencing_tokens))
        return f"<redlatch.Guard of {grants}, {state}>"

    def _raise_from(self, status: int) -> None:
        error: Optional[RedlatchError] = failure(status)
        if isinstance(error, Lost):
            at = self._lost_at()
            error.fencing_token, error.name = self._fencing_tokens[at], self._names[at]
        if error is not None:
            raise error

    def _lost_at(self) -> int:
        """Which of the locks was lost."""
        length = c_size_t()
        name = native.guard.lost_name(self._handle, byref(length))
        lost = string_at(name, length.value) if name else None
        names = [encoded(name, "name")[0] for name in self._names]
        # Another thread may have released it meanwhile, without finding a loss.
        return names.index(lost) if lost in names else 0

    def _close(self) -> None:
        # Wakes threads in wait_lost(), which keep the handle.
        native.guard.release(self._handle)
        self._handle = _CLOSED
