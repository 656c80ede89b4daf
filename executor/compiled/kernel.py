"""Compiled functions for the team (`team`), and what tells an old one on disk from a new."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import numba
import numpy as np
from numba import types

from executor.compiled.processor import has_feature, is_x86


@cache
def revision() -> int:
    """A number for the code of this package, at least 0.

    Numba's cache on disk knows a kernel's own file, the constants around the function and the
    processor's features, and nothing of what is compiled into it: a kernel has this number among
    them. It must have no functions around it, with which it would never be found again.
    """
    files = sorted(Path(__file__).parent.rglob("*.py"))
    return crc32(b"".join(file.read_bytes() for file in files))


def compiled(function: Callable[..., None], *arguments: Any) -> int:
    """The address of a function of pointers to such arguments (ctypes types), to be called on
    any threads.

    It is kept on disk where there is a place to keep it, and compiled anew where not.

    Raises:
        Exception: of any kind, if it cannot be compiled; users ask `faults.works`.
    """
    if is_x86() and not has_feature("fma"):
        raise NotImplementedError("this CPU has no fused multiply-add (AVX2)")
    pointed = [types.CPointer(numba.from_dtype(np.dtype(kind))) for kind in arguments]
    signature = types.void(*pointed)
    try:
        kernel = numba.cfunc(signature, cache=True, error_model="numpy")(function)
    except Exception:
        # No folder that can be written to, a full disk, a file that was cut off.
        kernel = numba.cfunc(signature, error_model="numpy")(function)
    _kept.append(kernel)
    return int(kernel.address)


_kept: list[Any] = []
"""The code of every address given out."""


def jit(function: Any) -> Any:
    """For what kernels call: compiled into them, free to reorder sums.

    Not kept on disk by itself, as the kernels are: Python would not even import the function
    where no folder can be written to.
    """
    return numba.njit(fastmath=True, nogil=True, error_model="numpy")(function)


def inlined(function: Any) -> Any:
    """The same, made part of a kernel before its types are known: sizes that the kernel hands on
    stay literals, as `emit.emitter`s want them."""
    return numba.njit(inline="always", error_model="numpy")(function)
