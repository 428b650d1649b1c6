"""Finds and loads the C library, and declares its functions.

ctypes releases the interpreter's lock for the time of a call, so other threads run on while one waits.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import sys
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_bool,
    c_char_p,
    c_int32,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

#: In place of a time to wait: as long as it takes.
FOREVER = 2**64 - 1

# The least version that has all functions below, and what later ones work as well: the same minor version, as
# redlatch_version_number() says.
_OLDEST = (0, 1, 0)
_COMPATIBLE = "0.1"


class LostStructure(Structure):
    """redlatch_lost."""

    _fields_ = [
        ("reason", c_int32),
        ("fencing_token", c_uint64),
        ("name", c_void_p),
        ("name_len", c_size_t),
        ("message", c_char_p),
    ]


LostFunction = CFUNCTYPE(None, POINTER(LostStructure), c_void_p)
DestroyFunction = CFUNCTYPE(None, c_void_p)
WorkFunction = CFUNCTYPE(None, c_void_p)

_HANDLE = c_void_p
_NEW_HANDLE = POINTER(c_void_p)
# Not c_char_p, which ctypes would take as ending before its first NUL.
_BYTES = c_void_p
_STATUS = c_int32

# What each function returns, then its arguments: as include/redlatch.h has them.
_FUNCTIONS: Dict[str, Tuple[Any, ...]] = {
    "redlatch_status_str": (c_char_p, _STATUS),
    "redlatch_version_string": (c_char_p,),
    "redlatch_version_number": (c_uint32,),
    "redlatch_last_error_message": (c_size_t, c_char_p, c_size_t),
    "redlatch_last_lost_reason": (c_int32,),
    "redlatch_options_new": (_STATUS, _NEW_HANDLE),
    "redlatch_options_set_url": (_STATUS, _HANDLE, c_char_p),
    "redlatch_options_set_prefix": (_STATUS, _HANDLE, c_char_p, c_size_t),
    "redlatch_options_set_lock_prefix": (_STATUS, _HANDLE, c_char_p, c_size_t),
    "redlatch_options_set_pool_size": (_STATUS, _HANDLE, c_uint32),
    "redlatch_options_set_connect_timeout_ms": (_STATUS, _HANDLE, c_uint64),
    "redlatch_options_set_command_timeout_ms": (_STATUS, _HANDLE, c_uint64),
    "redlatch_options_set_poll_interval_ms": (_STATUS, _HANDLE, c_uint64),
    "redlatch_options_set_sentinel_login": (_STATUS, _HANDLE, c_char_p, c_char_p),
    "redlatch_options_set_tls": (_STATUS, _HANDLE, c_bool),
    "redlatch_options_set_tls_ca_file": (_STATUS, _HANDLE, c_char_p),
    "redlatch_options_set_tls_client_certificate_files": (_STATUS, _HANDLE, c_char_p, c_char_p),
    "redlatch_options_set_max_lease_ms": (_STATUS, _HANDLE, c_uint64),
    "redlatch_options_set_node_timeout_ms": (_STATUS, _HANDLE, c_uint64),
    "redlatch_options_free": (None, _HANDLE),
    "redlatch_client_open": (_STATUS, c_char_p, _NEW_HANDLE),
    "redlatch_client_open_with": (_STATUS, _HANDLE, _NEW_HANDLE),
    "redlatch_client_audit": (_STATUS, _HANDLE, c_char_p, c_size_t, _NEW_HANDLE),
    "redlatch_client_free": (None, _HANDLE),
    "redlatch_lock_new": (_STATUS, _HANDLE, c_char_p, c_size_t, _NEW_HANDLE),
    "redlatch_timed_lock_new": (_STATUS, _HANDLE, c_char_p, c_size_t, c_uint64, _NEW_HANDLE),
    "redlatch_lock_set_lease_ms": (_STATUS, _HANDLE, c_uint64),
    "redlatch_lock_set_max_hold_ms": (_STATUS, _HANDLE, c_uint64),
    "redlatch_lock_set_fair": (_STATUS, _HANDLE, c_bool),
    "redlatch_lock_set_handoffs": (_STATUS, _HANDLE, c_uint32),
    "redlatch_lock_set_replicas": (_STATUS, _HANDLE, c_uint32, c_uint64),
    "redlatch_lock_set_on_lost": (_STATUS, _HANDLE, LostFunction, c_void_p),
    "redlatch_lock_set_on_lost_owned": (_STATUS, _HANDLE, LostFunction, c_void_p, DestroyFunction),
    "redlatch_lock_acquire": (_STATUS, _HANDLE, c_uint64, _HANDLE, _NEW_HANDLE),
    "redlatch_lock_with": (_STATUS, _HANDLE, c_uint64, WorkFunction, c_void_p),
    "redlatch_lock_inspect": (_STATUS, _HANDLE, _NEW_HANDLE),
    "redlatch_lock_force_release": (_STATUS, _HANDLE, POINTER(c_bool)),
    "redlatch_lock_name": (_BYTES, _HANDLE, POINTER(c_size_t)),
    "redlatch_lock_free": (None, _HANDLE),
    "redlatch_semaphore_new": (_STATUS, _HANDLE, c_char_p, c_size_t, c_uint32, _NEW_HANDLE),
    "redlatch_semaphore_set_permits": (_STATUS, _HANDLE, c_uint32),
    "redlatch_semaphore_set_timed_ms": (_STATUS, _HANDLE, c_uint64),
    "redlatch_semaphore_set_lease_ms": (_STATUS, _HANDLE, c_uint64),
    "redlatch_semaphore_set_max_hold_ms": (_STATUS, _HANDLE, c_uint64),
    "redlatch_semaphore_set_fair": (_STATUS, _HANDLE, c_bool),
    "redlatch_semaphore_set_handoffs": (_STATUS, _HANDLE, c_uint32),
    "redlatch_semaphore_set_replicas": (_STATUS, _HANDLE, c_uint32, c_uint64),
    "redlatch_semaphore_set_on_lost": (_STATUS, _HANDLE, LostFunction, c_void_p),
    "redlatch_semaphore_set_on_lost_owned": (_STATUS, _HANDLE, LostFunction, c_void_p, DestroyFunction),
    "redlatch_semaphore_acquire": (_STATUS, _HANDLE, c_uint64, _HANDLE, _NEW_HANDLE),
    "redlatch_semaphore_with": (_STATUS, _HANDLE, c_uint64, WorkFunction, c_void_p),
    "redlatch_semaphore_set_limit": (_STATUS, _HANDLE, c_uint32),
    "redlatch_semaphore_available": (_STATUS, _HANDLE, POINTER(c_uint32)),
    "redlatch_semaphore_holders": (_STATUS, _HANDLE, POINTER(c_size_t)),
    "redlatch_semaphore_inspect": (_STATUS, _HANDLE, _NEW_HANDLE),
    "redlatch_semaphore_force_release": (_STATUS, _HANDLE, POINTER(c_bool)),
    "redlatch_semaphore_name": (_BYTES, _HANDLE, POINTER(c_size_t)),
    "redlatch_semaphore_free": (None, _HANDLE),
    "redlatch_multi_lock_new": (_STATUS, _HANDLE, POINTER(c_char_p), POINTER(c_size_t), c_size_t, _NEW_HANDLE),
    "redlatch_multi_lock_set_lease_ms": (_STATUS, _HANDLE, c_uint64),
    "redlatch_multi_lock_set_max_hold_ms": (_STATUS, _HANDLE, c_uint64),
    "redlatch_multi_lock_set_on_lost": (_STATUS, _HANDLE, LostFunction, c_void_p),
    "redlatch_multi_lock_set_on_lost_owned": (_STATUS, _HANDLE, LostFunction, c_void_p, DestroyFunction),
    "redlatch_multi_lock_acquire": (_STATUS, _HANDLE, c_uint64, _HANDLE, _NEW_HANDLE),
    "redlatch_multi_lock_with": (_STATUS, _HANDLE, c_uint64, WorkFunction, c_void_p),
    "redlatch_multi_lock_count": (c_size_t, _HANDLE),
    "redlatch_multi_lock_name": (_BYTES, _HANDLE, c_size_t, POINTER(c_size_t)),
    "redlatch_multi_lock_free": (None, _HANDLE),
    "redlatch_guard_is_held": (c_bool, _HANDLE),
    "redlatch_guard_remaining_ms": (c_uint64, _HANDLE),
    "redlatch_guard_fencing_token": (c_uint64, _HANDLE),
    "redlatch_guard_fencing_tokens": (_STATUS, _HANDLE, POINTER(c_uint64), c_size_t, POINTER(c_size_t)),
    "redlatch_guard_token": (c_char_p, _HANDLE),
    "redlatch_guard_name": (_BYTES, _HANDLE, POINTER(c_size_t)),
    "redlatch_guard_check": (_STATUS, _HANDLE),
    "redlatch_guard_wait_lost_ms": (_STATUS, _HANDLE, c_uint64),
    "redlatch_guard_lost_name": (_BYTES, _HANDLE, POINTER(c_size_t)),
    "redlatch_guard_lost_reason": (c_int32, _HANDLE),
    "redlatch_guard_extend_ms": (_STATUS, _HANDLE, c_uint64),
    "redlatch_guard_release": (_STATUS, _HANDLE),
    "redlatch_guard_free": (None, _HANDLE),
    "redlatch_cancel_new": (_STATUS, _NEW_HANDLE),
    "redlatch_cancel_cancel": (_STATUS, _HANDLE),
    "redlatch_cancel_is_cancelled": (c_bool, _HANDLE),
    "redlatch_cancel_free": (None, _HANDLE),
    "redlatch_inspection_str": (c_char_p, _HANDLE),
    "redlatch_inspection_holders": (c_size_t, _HANDLE),
    "redlatch_inspection_holder_token": (_BYTES, _HANDLE, c_size_t, POINTER(c_size_t)),
    "redlatch_inspection_holder_expiry_ms": (c_uint64, _HANDLE, c_size_t),
    "redlatch_inspection_holder_permits": (c_uint32, _HANDLE, c_size_t),
    "redlatch_inspection_fencing_token": (c_uint64, _HANDLE),
    "redlatch_inspection_waiters": (c_size_t, _HANDLE),
    "redlatch_inspection_reserved": (c_uint32, _HANDLE),
    "redlatch_inspection_limit": (c_uint32, _HANDLE),
    "redlatch_inspection_declared_limit": (c_uint32, _HANDLE),
    "redlatch_inspection_available": (c_uint32, _HANDLE),
    "redlatch_inspection_is_free": (c_bool, _HANDLE),
    "redlatch_inspection_free": (None, _HANDLE),
    "redlatch_audit_next": (_STATUS, _HANDLE, POINTER(c_void_p), POINTER(c_size_t), POINTER(c_int32)),
    "redlatch_audit_free": (None, _HANDLE),
}


def _file_name() -> str:
    if sys.platform == "darwin":
        return f"libredlatch.{_COMPATIBLE}.dylib"
    return f"libredlatch.so.{_COMPATIBLE}"


def _usual_directories() -> List[Path]:
    """Where scripts/install is told to put it, as a rule."""
    directories = [
        Path(sys.prefix) / "lib",
        Path(os.path.expanduser("~/.local/lib")),
        Path("/usr/local/lib"),
        Path("/opt/homebrew/lib"),
    ]
    # Named for pkg-config, but next to the libraries.
    for directory in os.environ.get("PKG_CONFIG_PATH", "").split(os.pathsep):
        if directory:
            directories.append(Path(directory).parent)
    return directories


def _load() -> Tuple[ctypes.CDLL, str]:
    """Loads the library; the path is a bare name if the system's loader found it."""
    named = os.environ.get("REDLATCH_LIBRARY")
    if named:
        try:
            return ctypes.CDLL(named), named
        except OSError as error:
            raise ImportError(f"REDLATCH_LIBRARY names no library that can be loaded: {error}") from error
    name = _file_name()
    tried = []

    def load(path: str) -> ctypes.CDLL | None:
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            tried.append(f"  {path}: {error}")
            return None

    beside = Path(__file__).resolve().parent / name
    for path in [str(beside), name] + [str(directory / name) for directory in _usual_directories()]:
        # Files that are not there are told apart from those that do not load; the bare name is the loader's business.
        if path != name and not os.path.exists(path):
            tried.append(f"  {path}: not there")
            continue
        library = load(path)
        if library is not None:
            return library, path
    # Comes last: it starts other programs.
    found = ctypes.util.find_library("redlatch")
    if found is None:
        tried.append("  ctypes.util.find_library: not found")
    else:
        library = load(found)
        if library is not None:
            return library, found
    raise ImportError(
        "redlatch's C library was not found. Install it by scripts/install --prefix \"$HOME/.local\" in redlatch's "
        "repository, or set REDLATCH_LIBRARY to its path. Tried:\n" + "\n".join(tried)
    )


def _check_version(library: ctypes.CDLL, path: str) -> None:
    try:
        version_number = library.redlatch_version_number
    except AttributeError as error:
        raise ImportError(f"{path} is not redlatch's C library: {error}") from error
    version_number.restype, version_number.argtypes = c_uint32, []
    number = int(version_number())
    version = (number // 1000000, number // 1000 % 1000, number % 1000)
    if version < _OLDEST or version[:2] != _OLDEST[:2]:
        has = ".".join(map(str, version))
        raise ImportError(f"{path} is redlatch {has}, and this package needs {_COMPATIBLE}.x: install them together")


def _declare(library: ctypes.CDLL) -> None:
    for name, (result, *arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments


class Family:
    """The functions for one kind of handle, by what they do: `guard.release` is redlatch_guard_release."""

    def __init__(self, kind: str) -> None:
        for name in _FUNCTIONS:
            if name.startswith(f"redlatch_{kind}_"):
                setattr(self, name[len(f"redlatch_{kind}_") :], getattr(library, name))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise AttributeError(f"the library has no such function: {name}")


library, LIBRARY_PATH = _load()
_check_version(library, LIBRARY_PATH)
_declare(library)

audit = Family("audit")
cancel = Family("cancel")
client = Family("client")
guard = Family("guard")
inspection = Family("inspection")
lock = Family("lock")
multi_lock = Family("multi_lock")
options = Family("options")
semaphore = Family("semaphore")


def library_version() -> str:
    """The version of the C library that was loaded."""
    return str(library.redlatch_version_string().decode())
