"""What is still open when the interpreter is ended, or in a forked child.

A client that goes with all that was made from it does last what it has to clean up, such as the place of a waiter that
was interrupted. What the interpreter would leave lying, in cycles or frames, is closed here.
"""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Protocol, Set

from . import _library as native
from . import _losses
from ._handle import Handle


class Closable(Protocol):
    def _close(self) -> None: ...


# How long callbacks that are under way may take.
_PATIENCE_S = 2.0

# No WeakSet: removals from that run Python, where a signal handler may raise, which would be printed and lost.
_open: Set[weakref.ref[Closable]] = set()


class _AtExit:
    """Ends the waits of threads that the interpreter does not wait for: what they were granted would stay taken."""

    def __init__(self) -> None:
        self.has_come = False
        self._waits: Set[Handle] = set()

    def link(self, cancel: Handle) -> None:
        self._waits.add(cancel)
        # Only now, so that the end sees it, or is seen.
        if self.has_come:
            native.cancel.cancel(cancel)

    def unlink(self, cancel: Handle) -> None:
        self._waits.discard(cancel)

    def forget_after_fork(self) -> None:
        self._waits = set()

    def come(self) -> None:
        self.has_come = True
        for cancel in self._waits.copy():
            native.cancel.cancel(cancel)


at_exit = _AtExit()


def close_at_exit(closable: Closable) -> None:
    """Has it closed when the interpreter is ended, unless it is gone by then."""
    _open.add(weakref.ref(closable, _open.discard))
    # Only now, likewise.
    if at_exit.has_come:
        closable._close()


def _close_all() -> None:
    at_exit.come()
    for reference in _open.copy():
        closable = reference()
        if closable is not None:
            closable._close()
    _losses.callbacks_ended(_PATIENCE_S)


def _forget_after_fork() -> None:
    global _open
    _open = set()
    at_exit.forget_after_fork()
    _losses.forget_after_fork()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forget_after_fork)
