"""Calling Python when a lease is lost.

The C library calls from a thread of its own. That thread must find an interpreter: once this one is being ended, a
thread that comes for it is killed by CPython (before 3.14), in the middle of the C library. So `callbacks_ended` is
awaited before.
"""

from __future__ import annotations

import itertools
import queue
import time
from ctypes import string_at
from typing import Any, Callable, Dict, Iterable, Optional, Tuple

from ._arguments import encoded
from ._errors import Lost, Name, check, lost
from ._handle import Handle
from ._library import DestroyFunction, Family, LostFunction

#: What users pass. It gets the loss, as check() and release() would raise it.
OnLost = Callable[[Lost], object]

_numbers = itertools.count(1)
# By the number that the C library holds in place of a pointer, until it says that it does not need it any more.
_registered: Dict[int, Tuple[OnLost, Dict[bytes, Name]]] = {}
# Gets an item for each that was unregistered while the interpreter is being ended. A SimpleQueue, since that may happen
# in a destructor, which runs anywhere.
_unregistered: Optional[queue.SimpleQueue[None]] = None


def _call(structure: Any, number: int) -> None:
    on_lost, names = _registered[number]
    told = structure.contents
    name = names[string_at(told.name, told.name_len)]
    message = bytes(told.message).decode("utf-8", "replace")
    # If it raises, ctypes passes that to sys.unraisablehook, which prints it.
    on_lost(lost(message, told.reason, told.fencing_token, name))


def _unregister(number: int) -> None:
    _registered.pop(number, None)
    if _unregistered is not None:
        _unregistered.put(None)


# Kept for as long as the process lives: the C library has their addresses.
_CALL = LostFunction(_call)
_UNREGISTER = DestroyFunction(_unregister)


def set_on_lost(kind: Family, handle: Handle, on_lost: OnLost, names: Iterable[Name]) -> None:
    """Has it called for losses of what has these names; keeps it alive as long as that may happen."""
    if not callable(on_lost):
        raise TypeError(f"on_lost is not callable: {on_lost!r}")
    number = next(_numbers)
    _registered[number] = (on_lost, {encoded(name, "name")[0]: name for name in names})
    try:
        check(kind.set_on_lost_owned(handle, _CALL, number, _UNREGISTER))
    except BaseException:
        _registered.pop(number, None)
        raise


def callbacks_ended(within: float) -> bool:
    """Waits until none can be called any more. What they were set for must have been freed."""
    global _unregistered
    _unregistered = queue.SimpleQueue()
    end = time.monotonic() + within
    while _registered:
        try:
            _unregistered.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            return False
    return True


def forget_after_fork() -> None:
    """The parent's are never called in a child, and never unregistered."""
    global _unregistered
    _unregistered = None
    _registered.clear()
