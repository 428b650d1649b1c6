"""What users pass, as the C library takes it."""

from __future__ import annotations

import decimal
import numbers
import operator
import os
from datetime import timedelta
from typing import Optional, Tuple, TypeVar, Union

from ._errors import InvalidArgument, Name
from ._library import FOREVER

#: A length of time: seconds, or a timedelta.
Seconds = Union[int, float, timedelta]

#: Where a file is.
Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

First = TypeVar("First")
Second = TypeVar("Second")

_LARGEST_U32 = 2**32 - 1
# Floats have up to 17 digits; with more than that, the arithmetic below is exact.
_EXACT = decimal.Context(prec=60, rounding=decimal.ROUND_CEILING, traps=[])


def milliseconds(value: Seconds, what: str) -> int:
    """Rounds up to whole milliseconds; too many for the library are the most it takes, which are for ever.

    The decimal that a float is written as is meant, not the binary fraction a little beside it: 0.07 is 70 ms.
    """
    if isinstance(value, timedelta):
        whole, rest = divmod(value, timedelta(milliseconds=1))
        whole += bool(rest and whole >= 0)
    elif isinstance(value, bool):
        raise TypeError(f"{what} is a time in seconds, not {value}")
    elif isinstance(value, int):
        whole = value * 1000
    elif not isinstance(value, numbers.Number):
        raise TypeError(f"{what} is a time in seconds, or a timedelta, not {type(value).__name__}")
    else:
        seconds = float(value)
        if seconds != seconds:
            raise InvalidArgument(f"{what} is not a number")
        if seconds in (float("inf"), float("-inf")):
            whole = FOREVER if seconds > 0 else -1
        else:
            exact = _EXACT.multiply(decimal.Decimal(repr(seconds)), decimal.Decimal(1000))
            whole = int(exact.to_integral_value(decimal.ROUND_CEILING, _EXACT)) if exact >= 0 else -1
    if whole < 0:
        raise InvalidArgument(f"{what} is negative: {value}")
    return min(whole, FOREVER)


def wait(timeout: Optional[Seconds]) -> int:
    """How long to wait, at most: for ever if that is not said."""
    return FOREVER if timeout is None else milliseconds(timeout, "timeout")


def count(value: int, what: str) -> int:
    """A number that ctypes would otherwise cut to its lowest bits."""
    if isinstance(value, bool):
        raise TypeError(f"{what} is a number, not {value}")
    number = operator.index(value)
    if not 0 <= number <= _LARGEST_U32:
        raise InvalidArgument(f"{what} is not within 0 to {_LARGEST_U32}: {number}")
    return number


def encoded(value: Name, what: str) -> Tuple[bytes, int]:
    """The bytes of a name, and how many."""
    if isinstance(value, str):
        try:
            value = value.encode()
        except UnicodeEncodeError as error:
            # Without the text, which may have a password in it.
            raise InvalidArgument(f"{what} is no text that UTF-8 can express") from error
    elif not isinstance(value, bytes):
        raise TypeError(f"{what} is str or bytes, not {type(value).__name__}")
    return value, len(value)


def text(value: Name, what: str) -> bytes:
    """Text for C, in which a NUL ends it: what stands behind one must not be ignored."""
    whole, _ = encoded(value, what)
    if b"\0" in whole:
        raise InvalidArgument(f"{what} has a NUL in it")
    return whole


def path(value: Path, what: str) -> bytes:
    """The path of a file."""
    try:
        whole = os.fsencode(value)
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{what} is no path that the system can express") from error
    if b"\0" in whole:
        raise InvalidArgument(f"{what} has a NUL in it")
    return whole


def pair(value: Tuple[First, Second], what: str) -> Tuple[First, Second]:
    """Two values: not what else can be taken apart into two, such as text."""
    if not isinstance(value, tuple) or len(value) != 2:
        raise TypeError(f"{what} is a tuple of two values")
    return value
