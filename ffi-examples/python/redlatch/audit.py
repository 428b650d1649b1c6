"""The search for locks that nobody will ever free."""

from __future__ import annotations

from ctypes import byref, c_int32, c_size_t, c_void_p, string_at
from dataclasses import dataclass
from typing import Iterator

from . import _library as native
from ._errors import check
from ._handle import Handle

_DATA_TYPES = {1: "string", 2: "hash"}


@dataclass(frozen=True)
class LockWithoutExpiry:
    """A key that looks like a lock and has no TTL."""

    key: bytes
    #: "string": what SET NX leaves, and most libraries use. "hash": what reentrant locks use, such as Redisson's.
    data_type: str


def found(search: Handle) -> Iterator[LockWithoutExpiry]:
    key, length, data_type = c_void_p(), c_size_t(), c_int32()
    while True:
        check(native.audit.next(search, byref(key), byref(length), byref(data_type)))
        if key.value is None:
            return
        kind = _DATA_TYPES.get(data_type.value, "unknown")
        yield LockWithoutExpiry(string_at(key.value, length.value), kind)
