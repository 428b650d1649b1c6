"""Ending waits from another thread."""

from __future__ import annotations

from typing import Set

from . import _library as native
from ._errors import check
from ._handle import Handle, OfThisProcess


class CancelToken(OfThisProcess):
    """A switch that ends waits with Cancelled, from any thread or signal handler of Python: see Lock.acquire().

    One may end many waits, those that begin later included; there is no way back.
    """

    def __init__(self) -> None:
        self._handle = Handle(native.cancel.free)
        check(native.cancel.new(self._handle.out))
        # No mutex guards it, since a signal handler may cancel in the middle of link(): a set's own methods are atomic.
        self._linked: Set[Handle] = set()

    def cancel(self) -> None:
        """Ends all waits that it was passed to, now and later. Does not wait for them to return."""
        check(native.cancel.cancel(self._handle))
        for linked in self._linked.copy():
            native.cancel.cancel(linked)

    @property
    def is_cancelled(self) -> bool:
        """Whether cancel() was called."""
        return bool(native.cancel.is_cancelled(self._handle))

    @property
    def handle(self) -> Handle:
        """For redlatch itself."""
        return self._handle

    def link(self, linked: Handle) -> None:
        """For redlatch itself: cancels that too."""
        self._linked.add(linked)
        # Only now, so that a cancel() from another thread sees it, or is seen.
        if self.is_cancelled:
            native.cancel.cancel(linked)

    def unlink(self, linked: Handle) -> None:
        """For redlatch itself."""
        self._linked.discard(linked)

    def __repr__(self) -> str:
        return f"<redlatch.CancelToken{' cancelled' if self.is_cancelled else ''}>"
