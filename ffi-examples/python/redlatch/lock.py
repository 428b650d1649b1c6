"""Locks."""

from __future__ import annotations

from typing import Optional, Tuple

from . import _library as native
from ._acquirable import Named
from ._arguments import Seconds, encoded, milliseconds
from ._errors import Name, check
from ._handle import Handle
from ._losses import OnLost


class Lock(Named):
    """A named lock that at most one guard holds at a time, whoever asks for it: threads, processes, machines.

        with client.lock("item:42") as guard: ...        # waits as long as it takes
        with lock.acquire(timeout=5) as guard: ...       # LockTimeout after 5 s
        @lock                                            # each call of the function holds it

    It is not reentrant: a thread that already holds the lock and acquires it again waits for itself. Made by
    Client.lock() and Client.timed_lock().
    """

    def __init__(
        self,
        client: Handle,
        name: Name,
        *,
        lease: Optional[Seconds],
        timed: Optional[Seconds],
        fair: bool,
        max_hold: Optional[Seconds],
        handoffs: Optional[int],
        replicas: Optional[Tuple[int, Seconds]],
        on_lost: Optional[OnLost],
    ) -> None:
        handle = Handle(native.lock.free)
        if timed is not None:
            timed_lock_new = native.library.redlatch_timed_lock_new
            check(timed_lock_new(client, *encoded(name, "name"), milliseconds(timed, "lease"), handle.out))
        else:
            check(native.lock.new(client, *encoded(name, "name"), handle.out))
        super().__init__(native.lock, handle, name)
        self._set(lease=lease, max_hold=max_hold, on_lost=on_lost)
        self._set_service(fair=fair, handoffs=handoffs, replicas=replicas)
