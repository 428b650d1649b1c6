"""Clients: ways to the server or servers of one URL."""

from __future__ import annotations

from typing import Iterable, Iterator, Optional, Tuple

from . import _library as native
from . import audit
from ._arguments import Path, Seconds, count, encoded, milliseconds, pair, path, text
from ._errors import Name, check
from ._exit import close_at_exit
from ._handle import Handle, OfThisProcess
from ._losses import OnLost
from .audit import LockWithoutExpiry
from .lock import Lock
from .multi_lock import MultiLock
from .semaphore import Semaphore


class Client(OfThisProcess):
    """A way to the server or servers of one URL, shared by the locks and semaphores made from it.

    Open one for each process. Nothing is sent yet. It keeps a pool of connections, opened when needed, and a few
    background threads, which end with the last of what was made from it. After os.fork() the child opens a new one.

    `url`: redis://[user:password@]host[:port][/database], rediss:// for the same over TLS, unix:///path/to/socket,
    redis-sentinel://host,host,…[/database]#master, redis-cluster://host,host,…, redlock://host,host,… for locks that a
    majority of independent servers grants, or memory://[name] for locks that live in this process, without a server.

    - `prefix` stands before every key, so that programs can share a server. Defaults to nothing.
    - `lock_prefix` stands between the prefix and a lock's name. Defaults to "lock:".
    - `pool_size`: how many requests may be under way at once, at least 1. Defaults to 10.
    - `connect_timeout`: how long opening a connection may take, at most. Defaults to 1 s.
    - `command_timeout`: how long one request may take, at most, all included. Defaults to 2 s. It does not limit how
      long an acquire waits.
    - `poll_interval`: the longest pause between two looks of a waiter that nobody wakes. Defaults to 1 s.
    - `sentinel_login`: user and password for the sentinels of a redis-sentinel:// URL, if they want that; the URL's own
      are for the master. An empty user is the default one.
    - `tls`: whether there is TLS although the URL does not say so, as rediss:// does. TLS 1.2 and 1.3 are spoken, and a
      server has to prove that it is the host in the URL. Defaults to False.
    - `tls_ca_file`: the PEM file of those who may have signed the server's certificate. Defaults to those whom the
      system trusts.
    - `tls_client_certificate_files`: two PEM files, of what a server is shown that wants a client certificate, and of
      its private key, not encrypted.
    - `max_lease`: the longest lease on a Redlock, the same for all its clients: so long a server has no vote after a
      restart. Defaults to 60 s.
    - `node_timeout`: how long the answer of one server of a Redlock may take. Defaults to 0.1 s.

    Raises InvalidArgument for what cannot be used, such as a file that cannot be read, Unsupported for a kind of server
    that this version does not speak to, or for TLS where the library was built without it.
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
        sentinel_login: Optional[Tuple[str, str]] = None,
        tls: bool = False,
        tls_ca_file: Optional[Path] = None,
        tls_client_certificate_files: Optional[Tuple[Path, Path]] = None,
        max_lease: Optional[Seconds] = None,
        node_timeout: Optional[Seconds] = None,
    ) -> None:
        options = Handle(native.options.free)
        check(native.options.new(options.out))
        check(native.options.set_url(options, text(url, "url")))
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
        if sentinel_login is not None:
            user, password = pair(sentinel_login, "sentinel_login")
            check(native.options.set_sentinel_login(options, text(user, "user"), text(password, "password")))
        if tls:
            check(native.options.set_tls(options, True))
        if tls_ca_file is not None:
            check(native.options.set_tls_ca_file(options, path(tls_ca_file, "tls_ca_file")))
        if tls_client_certificate_files is not None:
            files = pair(tls_client_certificate_files, "tls_client_certificate_files")
            certificate, key = (path(file, "tls_client_certificate_files") for file in files)
            check(native.options.set_tls_client_certificate_files(options, certificate, key))
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
        replicas: Optional[Tuple[int, Seconds]] = None,
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
        - `replicas`: how many replicas of the server have to confirm each grant, renewal and extension, at least 1, and
          for how long that is waited for, from 1 ms to 1 hour. A grant that too few confirm is given back, and the
          acquire raises NotReplicated. It makes it unlikely that a failover loses the lock, and not impossible.
        - `on_lost(lost)` is called when a lease is lost, with the error that check() raises from then on, once for
          each. It is called on a thread of the client's own, and what it raises is printed (sys.unraisablehook). Work
          that must stop in time calls Guard.check() before each write.

        Raises InvalidArgument for a name or setting that cannot be used, Unsupported for replicas where there can be
        none (memory://), Forked.
        """
        return Lock(
            self._handle,
            name,
            lease=lease,
            timed=None,
            fair=fair,
            max_hold=max_hold,
            handoffs=handoffs,
            replicas=replicas,
            on_lost=on_lost,
        )

    def timed_lock(
        self,
        name: Name,
        lease: Seconds,
        *,
        fair: bool = False,
        max_hold: Optional[Seconds] = None,
        replicas: Optional[Tuple[int, Seconds]] = None,
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
            replicas=replicas,
            on_lost=on_lost,
        )

    def multi_lock(
        self,
        names: Iterable[Name],
        *,
        lease: Optional[Seconds] = None,
        max_hold: Optional[Seconds] = None,
        on_lost: Optional[OnLost] = None,
    ) -> MultiLock:
        """Names several locks, from 1 to 1000 in any order, that are held as one. No I/O.

        - `lease`: as of lock().
        - `max_hold`: how long they may be held in all, counted from when all are: then they are lost.
        - `on_lost(lost)` is called for each of them that is lost while the guard exists, with its name.

        Raises InvalidArgument for a name, number of names or setting that cannot be used, Forked.
        """
        return MultiLock(self._handle, names, lease=lease, max_hold=max_hold, on_lost=on_lost)

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
        replicas: Optional[Tuple[int, Seconds]] = None,
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
            replicas=replicas,
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
