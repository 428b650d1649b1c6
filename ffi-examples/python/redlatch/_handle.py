"""Handles of the C library."""

from __future__ import annotations

from ctypes import byref, c_void_p
from typing import Any, Callable


class Handle:
    """A handle that is freed with the last reference to it.

    It is there before the call that makes what it stands for, and that call writes into it: a signal handler that
    raises in between cannot lose it. ctypes holds a reference during each call that it is passed to, so it is never
    freed while another thread uses it. In a forked child to free it does no I/O, as the library promises.
    """

    __slots__ = ("_as_parameter_", "_free", "__weakref__")

    def __init__(self, free: Callable[..., Any]) -> None:
        self._free = free
        self._as_parameter_ = c_void_p()

    @property
    def out(self) -> Any:
        """What a function that makes one is passed."""
        return byref(self._as_parameter_)

    def __bool__(self) -> bool:
        """Whether it stands for anything."""
        return self._as_parameter_.value is not None

    def __del__(self) -> None:
        # A signal handler may have raised before there was anything.
        made = getattr(self, "_as_parameter_", None)
        if made is not None and made.value is not None:
            self._free(made)


class OfThisProcess:
    """Something that another process cannot be given."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        kind = type(self).__name__
        raise TypeError(
            f"a redlatch {kind} belongs to the process that made it and cannot be pickled or copied: "
            "open a redlatch.Client in the worker (its initializer is a good place), and pass it the URL and the name"
        )
