"""Compiled functions for the team (`team`), and what tells an old one on disk from a new."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import numba
import numpy as np
from numba import types


@cache
def revision() -> int:
    """A number for the code of this package, at least 0.

    Numba's cache on disk knows a kernel's own file and the constants around the function, and
    nothing of what is compiled into it: a kernel has this number among them. It must have no
    functions around it, with which it would never be found again.
    """
    files = sorted(Path(__file__).parent.rglob("*.py"))
    return crc32(b"".join(file.read_bytes() for file in files))


def compiled(function: Callable[..., None], arguments: type[ctypes.Structure]) -> int:
    """The address of a function of a pointer to such arguments, to be called on any threads."""
    signature = types.void(types.CPointer(numba.from_dtype(np.dtype(arguments))))
    kernel = numba.cfunc(signature, cache=True, error_model="numpy")(function)
    _kept.append(kernel)
    return int(kernel.address)


_kept: list[Any] = []
"""The code of every address given out."""


def jit(function: Any) -> Any:
    """For what kernels call: compiled into them, free to reorder sums."""
    return numba.njit(fastmath=True, nogil=True, error_model="numpy", cache=True)(function)


def inlined(function: Any) -> Any:
    """The same, made part of a kernel before its types are known: sizes that the kernel hands on
    stay literals, as `emit.emitter`s want them."""
    return numba.njit(inline="always", error_model="numpy")(function)
