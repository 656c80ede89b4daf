"""Find the OpenMP runtime whose threads torch computes with."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator

import torch

_PROBE = "omp_get_max_threads"
"""A function of every OpenMP runtime, which torch calls."""


class _Symbol(ctypes.Structure):
    """`Dl_info` of <dlfcn.h>."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def loaded_runtime() -> ctypes.CDLL | None:
    """The runtime that torch's calls are bound to.

    None where torch computes without OpenMP, or the system does not say where a function is from
    (Windows). Nothing is loaded that the process does not hold already.
    """
    for scope in _scopes():
        file = _file_of(scope, _PROBE)
        if file is not None:
            return ctypes.CDLL(file)
    return None


def _scopes() -> Iterator[ctypes.CDLL]:
    """Where torch's own references are looked up, in the linker's order.

    On Linux the process's global scope precedes a library's dependencies, so that a preloaded
    runtime serves torch too. macOS binds each reference to the one library named at link time.
    """
    if sys.platform == "win32":
        return
    if sys.platform != "darwin":
        yield ctypes.CDLL(None)
    extension = getattr(torch._C, "__file__", None)
    if extension is not None:
        yield ctypes.CDLL(extension)


def _file_of(scope: ctypes.CDLL, function: str) -> str | None:
    try:
        address = ctypes.cast(scope[function], ctypes.c_void_p)
        find = ctypes.CDLL(None).dladdr
    except AttributeError:
        return None
    find.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Symbol)]
    symbol = _Symbol()
    if not find(address, ctypes.byref(symbol)) or symbol.file is None:
        return None
    return str(symbol.file.decode())
