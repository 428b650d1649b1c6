"""Several locks that are held as one."""

from __future__ import annotations

from ctypes import byref, c_char_p, c_size_t, string_at
from typing import Dict, Iterable, Optional, Tuple

from . import _library as native
from ._acquirable import Acquirable
from ._arguments import Seconds, encoded
from ._errors import Name, check
from ._handle import Handle
from ._losses import OnLost


class MultiLock(Acquirable):
    """Several named locks that are held as one: all of them are taken, or none is.

        with client.multi_lock(["account:7", "account:3"]) as guard: ...

    They are the very locks that Client.lock() names. Whoever waits takes them one after the other in an order that is
    the same everywhere, and keeps those that it has; so no two can wait for each other, and one that wants many does
    not starve. Made by Client.multi_lock().
    """

    def __init__(
        self,
        client: Handle,
        names: Iterable[Name],
        *,
        lease: Optional[Seconds],
        max_hold: Optional[Seconds],
        on_lost: Optional[OnLost],
    ) -> None:
        if isinstance(names, (str, bytes)):
            raise TypeError(f"names are several, not one: {names!r}")
        # The same name may be given as text and as bytes; the first counts.
        given: Dict[bytes, Name] = {}
        for name in names:
            given.setdefault(encoded(name, "a name")[0], name)
        handle = Handle(native.multi_lock.free)
        pointers = (c_char_p * len(given))(*given)
        lengths = (c_size_t * len(given))(*map(len, given))
        check(native.multi_lock.new(client, pointers, lengths, len(given), handle.out))
        super().__init__(native.multi_lock, handle, tuple(given[name] for name in _in_order(handle)))
        self._set(lease=lease, max_hold=max_hold, on_lost=on_lost)

    @property
    def names(self) -> Tuple[Name, ...]:
        """The names, as they were given but each of them once, in the order in which they are taken."""
        return self._names


def _in_order(handle: Handle) -> Iterable[bytes]:
    for index in range(native.multi_lock.count(handle)):
        length = c_size_t()
        name = native.multi_lock.name(handle, index, byref(length))
        yield string_at(name, length.value)
