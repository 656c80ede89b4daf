"""Threads of LLVM's OpenMP (libomp, libiomp5), which torch's wheels for macOS carry.

A parallel region is what Clang makes of `#pragma omp parallel`: a micro task
void(int32*, int32*, void*) handed to `__kmpc_fork_call`.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from numba import carray

from executor.compiled.calls import call, thread_number, wait_as
from executor.compiled.kernel import compiled, revision

_FROM_COMPILER = 2
"""KMP_IDENT_KMPC: the flag of a location in compiled code."""


class _Location(ctypes.Structure):
    """`ident_t`: where in a source file a region is."""

    _fields_ = (
        ("reserved_1", ctypes.c_int32),
        ("flags", ctypes.c_int32),
        ("reserved_2", ctypes.c_int32),
        ("reserved_3", ctypes.c_int32),
        ("source", ctypes.c_char_p),  # ;file;function;line;column;;
    )


class _Call(ctypes.Structure):
    _fields_ = (("function", ctypes.c_int64), ("given", ctypes.c_int64))


class _Barrier(ctypes.Structure):
    _fields_ = (
        ("barrier", ctypes.c_int64),  # void(ident_t*, int32) at
        ("number", ctypes.c_int64),  # int32(ident_t*) at
        ("location", ctypes.c_int64),
    )


class LlvmTeam:
    """See `team.Team`.

    Raises:
        AttributeError: the library is no LLVM OpenMP.
    """

    name = "LLVM OpenMP"

    def __init__(self, library: ctypes.CDLL) -> None:
        self._location = _Location(flags=_FROM_COMPILER, source=b";executor;kernel;0;0;;")
        self._at = ctypes.addressof(self._location)
        self._number = _function(library, "__kmpc_global_thread_num", ctypes.c_void_p)
        self._number.restype = ctypes.c_int32
        self._push = _function(
            library, "__kmpc_push_num_threads", ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32
        )
        # What the micro task is given follows as variable arguments, which are passed another
        # way on Apple's processors: ctypes tells them by their absence here.
        self._fork = _function(
            library, "__kmpc_fork_call", ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p
        )
        self._given = _Barrier(
            barrier=_address(library, "__kmpc_barrier"),
            number=_address(library, "__kmpc_global_thread_num"),
            location=self._at,
        )
        self._micro = _micro_task()
        self.barrier = (_barrier_kernel(), ctypes.addressof(self._given))

    def run(self, function: int, given: int, threads: int) -> None:
        call = _Call(function, given)
        self._push(self._at, self._number(self._at), threads)
        self._fork(self._at, 1, self._micro, ctypes.c_void_p(ctypes.addressof(call)))


def _function(library: ctypes.CDLL, name: str, *arguments: Any) -> Any:
    function = library[name]
    function.argtypes, function.restype = arguments, None
    return function


def _address(library: ctypes.CDLL, name: str) -> int:
    return ctypes.cast(library[name], ctypes.c_void_p).value or 0


@cache
def _micro_task() -> int:
    code = revision()

    def kernel(number, place, given):  # type: ignore[no-untyped-def]
        a = carray(given, 1)[0]
        if code >= 0:
            call(a.function, a.given)

    return compiled(kernel, ctypes.c_int32, ctypes.c_int32, _Call)


@cache
def _barrier_kernel() -> int:
    code = revision()

    def kernel(pointer):  # type: ignore[no-untyped-def]
        a = carray(pointer, 1)[0]
        if code >= 0:
            wait_as(a.barrier, a.location, thread_number(a.number, a.location))

    return compiled(kernel, _Barrier)
