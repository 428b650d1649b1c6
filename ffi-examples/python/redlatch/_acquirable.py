"""What locks, semaphores and several locks have in common."""

from __future__ import annotations

import functools
import inspect
import threading
from ctypes import byref, c_bool
from types import TracebackType
from typing import Any, Callable, List, Optional, Tuple, Type, TypeVar

from . import _library, inspection
from ._arguments import Seconds, count, milliseconds, pair, wait
from ._errors import InvalidState, LockTimeout, Name, RedlatchError, check, failure
from ._exit import close_at_exit
from ._handle import Handle, OfThisProcess
from ._library import Family
from ._library import guard as native_guard
from ._losses import OnLost, set_on_lost
from ._waiting import until_granted
from .cancel import CancelToken
from .guard import Guard
from .inspection import Inspection

Function = TypeVar("Function", bound=Callable[..., Any])


class _Entered(threading.local):
    """The guards of `with` statements that this thread is in."""

    def __init__(self) -> None:
        self.guards: List[Guard] = []


class Acquirable(OfThisProcess):
    """What can be acquired: a description, not a hold. Any number of threads may acquire through one."""

    def __init__(self, native: Family, handle: Handle, names: Tuple[Name, ...]) -> None:
        self._native = native
        self._handle = handle
        self._names = names
        self._entered = _Entered()
        close_at_exit(self)

    def acquire(self, timeout: Optional[Seconds] = None, *, cancel: Optional[CancelToken] = None) -> Guard:
        """Acquires it, waiting for at most `timeout`: None is as long as it takes, 0 tries once and never waits.

        Ctrl-C ends the wait at once; other signal handlers of Python run at once, and if they do not raise, the wait
        goes on with its place in the queue. `cancel` ends it from another thread. It ends at most one command timeout
        after `timeout`.

        Raises LockTimeout; Cancelled; ConnectionFailed at once if the server cannot be reached (outages in the course
        of a wait are ridden out); Unconfirmed or ServerError if it cannot be told, or the server refuses for good;
        NoQuorum with a `timeout` of 0 if too few servers of a Redlock grant it, or can be asked; NotReplicated at once
        if too few replicas confirm it; KeyConflict, LimitMismatch, InvalidArgument, ThreadFailed, Forked.
        """
        wait_ms = wait(timeout)
        guard = Handle(native_guard.free)
        try:
            until_granted(functools.partial(self._attempt, guard), wait_ms, cancel)
            return Guard(guard, self._names)
        except BaseException:
            # A signal handler raised just when it was granted. It cannot be left to the handle's end: the exception
            # keeps that.
            if guard:
                native_guard.release(guard)
            raise

    def try_acquire(self) -> Optional[Guard]:
        """Acquires it if that can be had at once, without waiting; else returns None. At most one command timeout.

        Raises Unconfirmed if the server does not answer, and otherwise what acquire() does.
        """
        try:
            return self.acquire(0)
        except LockTimeout:
            return None

    def __enter__(self) -> Guard:
        guard = self.acquire()
        try:
            self._entered.guards.append(guard)
            return guard
        except BaseException:
            # A signal handler raised: __exit__ will not be called.
            self._entered.guards = [entered for entered in self._entered.guards if entered is not guard]
            guard.__exit__(None, None, None)
            raise

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], traceback: Optional[TracebackType]
    ) -> None:
        guards = self._entered.guards
        if not guards:
            raise InvalidState("this thread has not entered it; use `with lock.acquire() as guard` to pass guards on")
        guard = guards[-1]
        try:
            guard.__exit__(kind, error, traceback)
        finally:
            guards[:] = [entered for entered in guards if entered is not guard]

    def __call__(self, function: Function) -> Function:
        """Makes a function hold it during each of its calls: a decorator."""
        for runs_later in (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction):
            if runs_later(function):
                raise TypeError(f"{function!r} returns before its body has run, so nothing would be held while it does")

        @functools.wraps(function)
        def holding(*arguments: Any, **keywords: Any) -> Any:
            with self:
                return function(*arguments, **keywords)

        return holding  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"<redlatch.{type(self).__name__} {', '.join(map(repr, self._names))}>"

    def _set(
        self, *, lease: Optional[Seconds], max_hold: Optional[Seconds], on_lost: Optional[OnLost]
    ) -> None:
        if lease is not None:
            check(self._native.set_lease_ms(self._handle, milliseconds(lease, "lease")))
        if max_hold is not None:
            check(self._native.set_max_hold_ms(self._handle, milliseconds(max_hold, "max_hold")))
        if on_lost is not None:
            set_on_lost(self._native, self._handle, on_lost, self._names)

    def _attempt(self, guard: Handle, wait_ms: int, cancel: Optional[Handle]) -> Optional[RedlatchError]:
        return failure(self._native.acquire(self._handle, wait_ms, cancel, guard.out))

    def _close(self) -> None:
        # Attempts that are under way keep the handle.
        self._handle = Handle(self._native.free)


class Named(Acquirable):
    """A lock or a semaphore."""

    def __init__(self, native: Family, handle: Handle, name: Name) -> None:
        super().__init__(native, handle, (name,))

    @property
    def name(self) -> Name:
        """The name, as it was given."""
        return self._names[0]

    def inspect(self) -> Inspection:
        """Looks at what stands on the server for this name. One round trip; waits for nobody and changes nothing.

        Raises ConnectionFailed, Unconfirmed or ServerError if the server cannot be reached, does not answer, or
        refuses; KeyConflict, Forked.
        """
        seen = Handle(_library.inspection.free)
        check(self._native.inspect(self._handle, seen.out))
        return inspection.read(seen)

    def force_release(self) -> bool:
        """Throws out all who hold it, of redlatch or not. Returns whether anybody did.

        For operators, when the holder is known to be gone. It breaks the first guarantee: a holder that lives is told
        at its next renewal, extension or release, and believes until then that it holds it.

        Raises what inspect() does. After Unconfirmed a holder may have been thrown out: do it again.
        """
        held = c_bool()
        check(self._native.force_release(self._handle, byref(held)))
        return held.value

    def _set_service(
        self, *, fair: bool, handoffs: Optional[int], replicas: Optional[Tuple[int, Seconds]]
    ) -> None:
        check(self._native.set_fair(self._handle, bool(fair)))
        if handoffs is not None:
            check(self._native.set_handoffs(self._handle, count(handoffs, "handoffs")))
        if replicas is not None:
            number, limit = pair(replicas, "replicas")
            check(
                self._native.set_replicas(
                    self._handle, count(number, "replicas"), milliseconds(limit, "the time for replicas")
                )
            )
