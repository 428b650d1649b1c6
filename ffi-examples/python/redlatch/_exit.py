"""What is still open when the interpreter is ended, or in a forked child."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Protocol

from . import _losses


class Closable(Protocol):
    def _close(self) -> None: ...


# How long callbacks that are under way may take.
_PATIENCE_S = 2.0

_open: weakref.WeakSet[Closable] = weakref.WeakSet()


def close_at_exit(closable: Closable) -> None:
    """Has it closed when the interpreter is ended, unless it is gone by then."""
    _open.add(closable)


def _close_all() -> None:
    for closable in list(_open):
        closable._close()
    _losses.callbacks_ended(_PATIENCE_S)


def _forget_after_fork() -> None:
    global _open
    # A new one: another thread of the parent may just have been changing it.
    _open = weakref.WeakSet()
    _losses.forget_after_fork()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forget_after_fork)
