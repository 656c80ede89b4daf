"""Get memory from the system before it is needed, in the order that it will be."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from llvmlite import ir
from numba import carray

from executor.compiled.access import int_at, take_ticket
from executor.compiled.emit import emitter, integer, nothing, signature
from executor.compiled.faults import expect, works
from executor.compiled.kernel import compiled, revision


class _Arguments(ctypes.Structure):
    _fields_ = (
        ("pieces", ctypes.c_int64),  # [count, 2] int64: addresses of their begin and end
        ("count", ctypes.c_int64),
        ("page", ctypes.c_int64),  # bytes
        ("counter", ctypes.c_int64),  # int64, 0 at the beginning
    )


class Touching:
    """Pieces of memory, by the addresses of their begin and end, whose pages are written to and
    not changed, one piece after the other. Whoever has it done keeps the memory."""

    def __init__(self, pieces: Sequence[tuple[int, int]], page: int) -> None:
        flat = [address for piece in pieces for address in piece]
        self._pieces = (ctypes.c_int64 * len(flat))(*flat)
        self._counter = ctypes.c_int64()
        self._given = _Arguments(
            pieces=ctypes.addressof(self._pieces),
            count=len(pieces),
            page=page,
            counter=ctypes.addressof(self._counter),
        )
        self._function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_kernel())

    def run(self) -> None:
        """Until all is there, or it is stopped. Python goes on meanwhile in other threads."""
        self._function(ctypes.addressof(self._given))

    @property
    def begun(self) -> int:
        """How many pieces are there, or were begun."""
        return min(int(self._counter.value), len(self._pieces) // 2)

    def stop(self) -> None:
        """Begin no further piece."""
        self._counter.value = len(self._pieces) // 2


def can_touch() -> bool:
    """Whether `Touching` works here."""
    return works("taking memory ahead", "memory when it is first written", _check)


def _check() -> None:
    """Raises if pages that are touched change."""
    numbers = torch.arange(16)
    touched = numbers.clone()
    begin = touched.data_ptr()
    touching = Touching([(begin, begin + 64), (begin + 64, begin + 128)], page=8)
    touching.run()
    if touching.begun != 2:
        raise RuntimeError("not all pieces were touched")
    expect(touched, numbers)


@cache
def _kernel() -> int:
    code = revision()

    def kernel(pointer):  # type: ignore[no-untyped-def]
        a = carray(pointer, 1)[0]
        piece = take_ticket(a.counter)
        while code >= 0 and piece < a.count:
            for address in range(
                int_at(a.pieces, 2 * piece), int_at(a.pieces, 2 * piece + 1), a.page
            ):
                _touch(address)
            piece = take_ticket(a.counter)

    return compiled(kernel, _Arguments)


@emitter
def _touch(typing: Any, address: Any) -> Any:
    """Have the processor write the int64 at an address and not change it, whoever writes there
    at the same time: exchange it for 0 if it is 0. (LLVM makes a mere reading of adding 0.)"""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        builder.cmpxchg(place, integer(0), integer(0), "monotonic", "monotonic")
        return nothing()

    return signature(1), generate
