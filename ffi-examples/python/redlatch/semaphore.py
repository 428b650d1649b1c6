"""Semaphores."""

from __future__ import annotations

from ctypes import byref, c_size_t, c_uint32
from typing import Optional, Tuple

from . import _library as native
from ._acquirable import Named
from ._arguments import Seconds, count, encoded, milliseconds
from ._errors import InvalidArgument, Name, check
from ._handle import Handle
from ._losses import OnLost


class Semaphore(Named):
    """A named number of permits, of which each guard holds one, or several: threads, processes, machines.

        permit = semaphore.try_acquire()                 # None at once when all are taken
        with semaphore: ...                              # waits as long as it takes

    Made by Client.semaphore().
    """

    def __init__(
        self,
        client: Handle,
        name: Name,
        limit: int,
        *,
        permits: int,
        timed: Optional[Seconds],
        lease: Optional[Seconds],
        fair: bool,
        max_hold: Optional[Seconds],
        handoffs: Optional[int],
        replicas: Optional[Tuple[int, Seconds]],
        on_lost: Optional[OnLost],
    ) -> None:
        handle = Handle(native.semaphore.free)
        check(native.semaphore.new(client, *encoded(name, "name"), count(limit, "limit"), handle.out))
        super().__init__(native.semaphore, handle, name)
        check(native.semaphore.set_permits(handle, count(permits, "permits")))
        if timed is not None:
            if lease is not None:
                raise InvalidArgument("a lease is either renewed or timed: pass lease or timed, not both")
            check(native.semaphore.set_timed_ms(handle, milliseconds(timed, "timed")))
        self._set(lease=lease, max_hold=max_hold, on_lost=on_lost)
        self._set_service(fair=fair, handoffs=handoffs, replicas=replicas)

    def available(self) -> int:
        """How many permits are free: neither held nor left to a waiter that was woken. For monitoring. One round trip.

        Raises what inspect() does.
        """
        free = c_uint32()
        check(native.semaphore.available(self._handle, byref(free)))
        return free.value

    def holders(self) -> int:
        """How many hold permits now, each of them one or several. Who they are tells inspect(). One round trip.

        Raises what inspect() does.
        """
        holders = c_size_t()
        check(native.semaphore.holders(self._handle, byref(holders)))
        return holders.value

    def set_limit(self, limit: int) -> None:
        """Makes `limit` the number of permits for all clients, from the next grant on. At most two command timeouts.

        More permits go to those who wait, at once. With fewer nobody is thrown out; who comes later waits until enough
        have been released. 0 lets nobody in. What programs declare stays, and this one governs, until two days after
        the last lease has ended.

        Raises LimitMismatch if others declare another limit for this name, otherwise what inspect() does. After
        Unconfirmed set it again.
        """
        check(native.semaphore.set_limit(self._handle, count(limit, "limit")))
