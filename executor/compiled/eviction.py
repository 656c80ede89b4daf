"""Put memory out of all caches, so that reading it is reading memory, however little of it."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch
from llvmlite import ir
from numba import carray
from numba.core import cgutils

from executor.compiled.emit import CACHE_LINE, emitter, nothing, signature
from executor.compiled.faults import expect, works
from executor.compiled.kernel import compiled, revision
from executor.compiled.processor import is_x86


class _Arguments(ctypes.Structure):
    _fields_ = (
        ("start", ctypes.c_int64),  # an address
        ("size", ctypes.c_int64),  # bytes
    )


def can_evict() -> bool:
    """Whether a program may do so on this processor: every 64-bit x86 has an instruction for it,
    which reaches the caches of all its cores."""
    return is_x86() and works("cache eviction", "reading what no cache holds", _check)


def _check() -> None:
    """Raises if memory is another after it was put out of the caches."""
    numbers = torch.arange(64)
    evicted = numbers.clone()
    evict(evicted.data_ptr(), evicted.nbytes)
    expect(evicted, numbers)


def evict(address: int, size: int) -> None:
    """Put so many bytes at an address out of the caches; ask `can_evict` first."""
    given = _Arguments(start=address, size=size)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_kernel())(ctypes.addressof(given))


@cache
def _kernel() -> int:
    code = revision()

    def kernel(pointer):  # type: ignore[no-untyped-def]
        a = carray(pointer, 1)[0]
        for line in range(a.start, a.start + a.size if code >= 0 else a.start, CACHE_LINE):
            _flush(line)

    return compiled(kernel, _Arguments)


@emitter
def _flush(typing: Any, address: Any) -> Any:
    """Write the cache line at an address back and forget it."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [byte]), "llvm.x86.sse2.clflush"
        )
        builder.call(function, [builder.inttoptr(arguments[0], byte)])
        return nothing()

    return signature(1), generate
