"""Several kernels in one parallel region: entering one for each costs more than small ones take."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from llvmlite import ir
from numba import carray

from executor.compiled import team
from executor.compiled.access import int_at
from executor.compiled.emit import INT, emitter, nothing, signature
from executor.compiled.kernel import compiled, revision


class Call(NamedTuple):
    """Addresses of a function void(void*) and of what it is given."""

    function: int
    given: int

    def run(self) -> None:
        team.run_together(self.function, self.given)


class _Arguments(ctypes.Structure):
    _fields_ = (
        ("calls", ctypes.c_int64),  # [count, 2] int64: functions, and what they are given
        ("count", ctypes.c_int64),
        ("barrier", ctypes.c_int64),  # void(): returns when all threads have called it
    )


class Series:
    """Calls on all threads, each begun when all threads have ended the one before.

    The calls are kept by whoever made them: this holds their addresses only.

    Raises:
        RuntimeError: there is no team of threads (`team.openmp`).
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        library = team.openmp()
        if library is None:
            raise RuntimeError("a series of kernels needs GNU OpenMP")
        flat = [address for call in calls for address in call]
        self._calls = (ctypes.c_int64 * len(flat))(*flat)
        self._given = _Arguments(
            calls=ctypes.addressof(self._calls),
            count=len(calls),
            barrier=ctypes.cast(library.GOMP_barrier, ctypes.c_void_p).value,
        )
        self.call = Call(_kernel(), ctypes.addressof(self._given))


@cache
def _kernel() -> int:
    code = revision()

    def kernel(pointer):  # type: ignore[no-untyped-def]
        a = carray(pointer, 1)[0]
        for i in range(a.count if code >= 0 else 0):
            if i > 0:
                _wait(a.barrier)
            _call(int_at(a.calls, 2 * i), int_at(a.calls, 2 * i + 1))

    return compiled(kernel, _Arguments)


@emitter
def _call(typing: Any, function: Any, given: Any) -> Any:
    """Call the function at an address with an address."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [INT])
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), [arguments[1]])
        return nothing()

    return signature(2), generate


@emitter
def _wait(typing: Any, function: Any) -> Any:
    """Call the function at an address."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [])
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), [])
        return nothing()

    return signature(1), generate
