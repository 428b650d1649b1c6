"""Distributed locks and counting semaphores on Redis and Valkey.

    import redlatch

    client = redlatch.Client("redis://127.0.0.1/")
    with client.lock("item:42") as guard:  # renewed in the background until it is released
        guard.check()  # before each write: raises Lost once the lock is lost; no I/O
        print(guard.fencing_token)

What a lock guarantees, and what it cannot, stands in redlatch's README: read that first. The package has no code of its
own for that: it calls redlatch's C library by ctypes, so locks are shared with programs in Rust, C and C++, and with
whoever takes "lock:<name>" with SET NX PX, such as redis-py.

Everything may be used by several threads at once. Times are in seconds (int, float or timedelta) and are rounded up to
milliseconds.
"""

from ._errors import (
    Cancelled,
    ConnectionFailed,
    Forked,
    InternalError,
    InvalidArgument,
    InvalidState,
    KeyConflict,
    LimitMismatch,
    LockTimeout,
    Lost,
    LostReason,
    NoQuorum,
    NotReplicated,
    RedlatchError,
    ServerError,
    ThreadFailed,
    Unconfirmed,
    Unsupported,
)
from ._library import LIBRARY_PATH, library_version
from .audit import LockWithoutExpiry
from .cancel import CancelToken
from .client import Client
from .guard import Guard
from .inspection import Holder, Inspection
from .lock import Lock
from .multi_lock import MultiLock
from .semaphore import Semaphore

__version__ = "0.1.0"

__all__ = [
    "LIBRARY_PATH",
    "CancelToken",
    "Cancelled",
    "Client",
    "ConnectionFailed",
    "Forked",
    "Guard",
    "Holder",
    "Inspection",
    "InternalError",
    "InvalidArgument",
    "InvalidState",
    "KeyConflict",
    "LimitMismatch",
    "Lock",
    "LockTimeout",
    "LockWithoutExpiry",
    "Lost",
    "LostReason",
    "MultiLock",
    "NoQuorum",
    "NotReplicated",
    "RedlatchError",
    "Semaphore",
    "ServerError",
    "ThreadFailed",
    "Unconfirmed",
    "Unsupported",
    "library_version",
]
