"""Clients: ways to one server."""

from __future__ import annotations

from typing import Iterator, Optional

from . import _library as native
from . import audit
from ._arguments import Seconds, count, encoded, milliseconds
from ._errors import InvalidArgument, Name, check
from ._exit import close_at_exit
from ._handle import Handle, OfThisProcess
from ._losses import OnLost
from .audit import LockWithoutExpiry
from .lock import Lock
from .semaphore import Semaphore


class Client(OfThisProcess):
    """A way to one server, shared by the locks and semaphores made from it. Open one for each process.

    Nothing is sent yet. It keeps a pool of connections, opened when needed, and up to three background threads, which
    end with the last of what was made from it. After os.fork() the child opens a new one.

    `url`: redis://[user:password@]host[:port][/database], unix:///path/to/socket, redlock://[user:password@]host,host,…
    for locks that a majority of independent servers grants, or memory://[name] for locks that live in this process,
    without a server.

    - `prefix` stands before every key, so that programs can share a server. Defaults to nothing.
    - `lock_prefix` stands between the prefix and a lock's name. Defaults to "lock:".
    - `pool_size`: how many requests may be under way at once, at least 1. Defaults to 10.
    - `connect_timeout`: how long opening a connection may take, at most. Defaults to 1 s.
    - `command_timeout`: how long one request may take, at most, all included. Defaults to 2 s. It does not limit how
      long an acquire waits.
    - `poll_interval`: the longest pause between two looks of a waiter that nobody wakes. Defaults to 1 s.
    - `max_lease`: the longest lease on a Redlock, the same for all its clients: so long a server has no vote after a
      restart. Defaults to 60 s.
    - `node_timeout`: how long the answer of one server of a Redlock may take. Defaults to 0.1 s.

    Raises InvalidArgument for what cannot be used, Unsupported for a kind of server that this version does not speak
    to.
    """

    def __init__(
        self,
        url: str = "redis://127.0.0.1/",
        *,
        prefix: Name = b"",
        lock_prefix: Optional[Name] = None,
        pool_size: Optional[int] = None,
        connect_timeout: Optional[Seconds] = None,
        command_timeout: Optional[Seconds] = None,
        poll_interval: Optional[Seconds] = None,
        max_lease: Optional[Seconds] = None,
        node_timeout: Optional[Seconds] = None,
    ) -> None:
        options = Handle(native.options.free)
        check(native.options.new(options.out))
        text, _ = encoded(url, "url")
        if b"\0" in text:
            raise InvalidArgument("url has a NUL in it")
        check(native.options.set_url(options, text))
        check(native.options.set_prefix(options, *encoded(prefix, "prefix")))
        if lock_prefix is not None:
            check(native.options.set_lock_prefix(options, *encoded(lock_prefix, "lock_prefix")))
        if pool_size is not None:
            check(native.options.set_pool_size(options, count(pool_size, "pool_size")))
        for what, value in (
            ("connect_timeout", connect_timeout),
            ("command_timeout", command_timeout),
            ("poll_interval", poll_interval),
            ("max_lease", max_lease),
            ("node_timeout", node_timeout),
        ):
            if value is not None:
                check(getattr(native.options, f"set_{what}_ms")(options, milliseconds(value, what)))
        self._handle = Handle(native.client.free)
        check(native.client.open_with(options, self._handle.out))
        close_at_exit(self)

    def lock(
        self,
        name: Name,
        *,
        lease: Optional[Seconds] = None,
        fair: bool = False,
        max_hold: Optional[Seconds] = None,
        handoffs: Optional[int] = None,
        on_lost: Optional[OnLost] = None,
    ) -> Lock:
        """Names a lock whose lease is renewed in the background until it is released. No I/O.

        - `lease`: how long the lock stays taken after its holder was last heard of: what a crash costs the others. From
          10 ms to 10 years; several times the command timeout, as a rule. Defaults to 30 s.
        - `fair`: whether those who wait are served strictly in the order in which they came: all threads of all
          processes, among those who set it.
        - `max_hold`: how long one grant may last in all: then it is lost. Defaults to no limit.
        - `handoffs`: how often in a row the lock may be handed on to another thread of this client without a round
          trip. 0 is never; defaults to 64.
        - `on_lost(lost)` is called when a lease is lost, with the error that check() raises from then on, once for
          each. It is called on a thread of the client's own, and what it raises is printed (sys.unraisablehook). Work
          that must stop in time calls Guard.check() before each write.

        Raises InvalidArgument for a name or setting that cannot be used, Forked.
        """
        return Lock(
            self._handle,
            name,
            lease=lease,
            timed=None,
            fair=fair,
            max_hold=max_hold,
            handoffs=handoffs,
            on_lost=on_lost,
        )

    def timed_lock(
        self,
        name: Name,
        lease: Seconds,
        *,
        fair: bool = False,
        max_hold: Optional[Seconds] = None,
        on_lost: Optional[OnLost] = None,
    ) -> Lock:
        """Names a lock with a fixed lease, which is never renewed: extend it by Guard.extend(). No I/O.

        For work that must not run on unnoticed. Size the lease to the slow tail of the work, not the median. Otherwise
        as lock().
        """
        return Lock(
            self._handle,
            name,
            lease=None,
            timed=lease,
            fair=fair,
            max_hold=max_hold,
            handoffs=None,
            on_lost=on_lost,
        )

    def semaphore(
        self,
        name: Name,
        limit: int,
        *,
        permits: int = 1,
        timed: Optional[Seconds] = None,
        lease: Optional[Seconds] = None,
        fair: bool = False,
        max_hold: Optional[Seconds] = None,
        handoffs: Optional[int] = None,
        on_lost: Optional[OnLost] = None,
    ) -> Semaphore:
        """Names a semaphore of `limit` permits. No I/O.

        All programs declare the same limit, at least 1: it is kept on the server, and whoever comes with another gets
        LimitMismatch. Semaphore.set_limit() changes the number of permits for all.

        - `permits`: how many one acquire takes, all of them at once, or none.
        - `timed`: a fixed lease, which is never renewed, in place of `lease`.
        - `lease`: of the permits, which is renewed in the background until they are released. Defaults to 30 s.

        Otherwise as lock().
        """
        return Semaphore(
            self._handle,
            name,
            limit,
            permits=permits,
            timed=timed,
            lease=lease,
            fair=fair,
            max_hold=max_hold,
            handoffs=handoffs,
            on_lost=on_lost,
        )

    def audit(self, pattern: Name = "lock:*") -> Iterator[LockWithoutExpiry]:
        """Looks through the server's database for locks that nobody will ever free.

        These are keys that match `pattern`, look like a lock (a string, or a hash as Redisson has) and have no TTL. Not
        redlatch's own: all of those have one. The pattern is a glob over whole keys as SCAN takes it; prefixes are not
        put before it. While the server grows or shrinks its table a key can come twice.

        Each step takes at most one command timeout for each page of some 1000 keys. It raises ConnectionFailed,
        Unconfirmed or ServerError, and the search is over then.
        """
        search = Handle(native.audit.free)
        check(native.client.audit(self._handle, *encoded(pattern, "pattern"), search.out))
        return audit.found(search)

    def __repr__(self) -> str:
        # Without the URL, which may have a password in it.
        return "<redlatch.Client>"

    def _close(self) -> None:
        self._handle = Handle(native.client.free)
