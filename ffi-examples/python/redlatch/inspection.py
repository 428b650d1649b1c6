"""What stood on the server for a name when it was looked at."""

from __future__ import annotations

from ctypes import byref, c_size_t, string_at
from dataclasses import dataclass, field
from typing import Optional, Tuple

from . import _library as native
from ._handle import Handle
from ._library import FOREVER


@dataclass(frozen=True)
class Holder:
    """One that held it, of redlatch or not."""

    #: What Guard.token is there, or what another library put there (bytes that are no UTF-8 as with os.fsdecode()).
    token: str
    #: In how many seconds its hold ended by itself, unless it was renewed. None: never, because another library put it
    #: there without a TTL; if its holder has crashed, it stays until somebody deletes it: see force_release().
    expires_in: Optional[float]
    #: How many permits it had: 1 for a lock.
    permits: int


@dataclass(frozen=True)
class Inspection:
    """What stood on the server for a name. It may be outdated by the time it is read. str() has it in words."""

    #: At most one for a lock.
    holders: Tuple[Holder, ...]
    #: The one that was drawn last: a holder's, or one that was drawn with it for those to whom the lock may be handed
    #: on. 0 when nobody held it, if redlatch had not granted it in the last two days.
    fencing_token: int
    #: How many waited, as far as the server knew: threads where they are fair, otherwise clients.
    waiters: int
    #: How many permits were left to waiters that were woken and had not come for them yet.
    reserved: int
    #: How many permits there were: what was set by Semaphore.set_limit(), or else what is declared. 1 for a lock.
    limit: int
    #: How many permits its users declare: 1 for a lock.
    declared_limit: int
    #: How many permits were free: neither held nor reserved.
    available: int
    #: Whether nobody held it and nothing was reserved.
    is_free: bool
    _words: str = field(repr=False, compare=False)

    def __str__(self) -> str:
        return self._words


def read(handle: Handle) -> Inspection:
    """Takes over what the C library saw."""
    seen = native.inspection
    return Inspection(
        holders=tuple(_holder(handle, index) for index in range(seen.holders(handle))),
        fencing_token=seen.fencing_token(handle),
        waiters=seen.waiters(handle),
        reserved=seen.reserved(handle),
        limit=seen.limit(handle),
        declared_limit=seen.declared_limit(handle),
        available=seen.available(handle),
        is_free=seen.is_free(handle),
        _words=seen.str(handle).decode("utf-8", "replace"),
    )


def _holder(handle: Handle, index: int) -> Holder:
    length = c_size_t()
    token = native.inspection.holder_token(handle, index, byref(length))
    expiry = native.inspection.holder_expiry_ms(handle, index)
    return Holder(
        token=string_at(token, length.value).decode("utf-8", "surrogateescape"),
        expires_in=None if expiry == FOREVER else expiry / 1000,
        permits=native.inspection.holder_permits(handle, index),
    )
