"""Waiting in such a way that signals are acted on at once.

Python runs signal handlers on the main thread, between two of its instructions: while that is inside the C library,
Ctrl-C does nothing. So there a wait is made by another thread, which the main one only watches. If a handler raises,
as that of Ctrl-C does, the wait is cancelled; if not, it goes on, and has not lost its place in the queue.
"""

from __future__ import annotations

import _thread
import os
import signal
import threading
import time
from typing import Callable, List, Optional

from . import _library as native
from ._errors import BUSY, CONNECTION, NO_QUORUM, SERVER, UNCONFIRMED, Forked, RedlatchError, ThreadFailed, check
from ._exit import at_exit
from ._handle import Handle
from ._library import FOREVER
from .cancel import CancelToken

#: Makes an attempt of so many milliseconds that a switch can end; returns what went wrong.
Attempt = Callable[[int, Optional[Handle]], Optional[RedlatchError]]

# A signal wakes the main thread unless the system gave it to another thread of the program; then it is seen after this.
_SLICE_S = 0.05
_SLICE_MS = 50

# What ends an attempt that is not to wait, but may be ridden out by one that is: the library knows which server is
# worth waiting for. One that cannot be reached is asked once more at most.
_MAY_PASS = {BUSY, UNCONFIRMED, NO_QUORUM, CONNECTION, SERVER}

# Those that tell of a fault of the very thread that they are given to.
_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS}


def on_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


def until_granted(attempt: Attempt, wait_ms: int, token: Optional[CancelToken]) -> None:
    """Attempts it for that long, and raises what it failed by. On the main thread signals are acted on meanwhile."""
    if wait_ms == 0 or not on_main_thread():
        error = _attempt_here(attempt, wait_ms, token)
        if error is not None:
            raise error
        return
    started = time.monotonic()
    # Nearly always it is free, and no other thread is needed. This takes one command timeout at most.
    error = attempt(0, None if token is None else token.handle)
    if error is None:
        return
    if error.code not in _MAY_PASS:
        raise error
    if wait_ms != FOREVER:
        wait_ms = max(1, wait_ms - int((time.monotonic() - started) * 1000))
    error = _attempt_elsewhere(attempt, wait_ms, token)
    if error is not None:
        raise error


def _attempt_here(attempt: Attempt, wait_ms: int, token: Optional[CancelToken]) -> Optional[RedlatchError]:
    if wait_ms == 0:
        return attempt(wait_ms, None if token is None else token.handle)
    cancel = Handle(native.cancel.free)
    check(native.cancel.new(cancel.out))
    if token is not None:
        token.link(cancel)
    # A thread that the interpreter does not wait for must not be granted anything when that has ended.
    at_exit.link(cancel)
    try:
        return attempt(wait_ms, cancel)
    finally:
        at_exit.unlink(cancel)
        if token is not None:
            token.unlink(cancel)


def _attempt_elsewhere(attempt: Attempt, wait_ms: int, token: Optional[CancelToken]) -> Optional[RedlatchError]:
    cancel = Handle(native.cancel.free)
    check(native.cancel.new(cancel.out))
    process = os.getpid()
    # For good, unlike the lock, which is taken by whoever sees it first: a handler may raise just then.
    finished: List[bool] = []
    outcome: List[Optional[RedlatchError]] = []
    # A lock and no threading.Event: that has state in Python, which a signal handler that raises could leave half
    # changed.
    done = _thread.allocate_lock()
    done.acquire()

    def run() -> None:
        try:
            outcome.append(attempt(wait_ms, cancel))
        finally:
            finished.append(True)
            done.release()

    def ended() -> bool:
        # A handler may fork, and its child goes on here, without the thread.
        if os.getpid() != process:
            raise Forked("the process was forked during the wait: open a new client in this one")
        if not finished:
            done.acquire(timeout=_SLICE_S)
        return bool(finished)

    started: List[int] = []
    # Read before it is changed, so that a handler that raises during the change cannot lose it.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    if token is not None:
        token.link(cancel)
    try:
        try:
            # The thread inherits the mask: signals for the program stay with those threads that had them before.
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _FAULTS)
            # By one call from Python's view, so that no handler can raise between the start and the note of it.
            started.extend(map(_thread.start_new_thread, (run,), ((),)))
        except RuntimeError as error:
            raise ThreadFailed(f"could not start a thread to wait in: {error}") from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        while not ended():
            pass
    except BaseException:
        # A signal handler raised.
        native.cancel.cancel(cancel)
        if started:
            _join_in_spite_of_signals(ended)
        raise
    finally:
        if token is not None:
            token.unlink(cancel)
    # Nothing if it failed in Python, which has been printed then.
    return outcome[0] if outcome else RedlatchError("the wait failed")


def _join_in_spite_of_signals(ended: Callable[[], bool]) -> None:
    """Waits for a thread that was cancelled: one command timeout at most. The first exception is the one to raise."""
    while True:
        try:
            if ended():
                return
        except Forked:
            return
        except BaseException:
            continue


def wait_lost(guard: Handle, wait_ms: int) -> int:
    """Waits for a loss; returns the status. On the main thread in slices, since no place in a queue depends on it."""
    if not on_main_thread():
        return int(native.guard.wait_lost_ms(guard, wait_ms))
    end = None if wait_ms == FOREVER else time.monotonic() + wait_ms / 1000
    while True:
        left = _SLICE_MS if end is None else max(0, int((end - time.monotonic()) * 1000) + 1)
        status = int(native.guard.wait_lost_ms(guard, min(left, _SLICE_MS)))
        if status != 0 or (end is not None and left <= _SLICE_MS):
            return status
