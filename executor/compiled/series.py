"""Several kernels in one parallel region: entering one for each costs more than small ones take."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch
from numba import carray

from executor.compiled import team
from executor.compiled.access import int_at, take_ticket
from executor.compiled.calls import call
from executor.compiled.faults import expect, works
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
        ("barrier", ctypes.c_int64),  # void(void*): returns when all threads have called it
        ("meeting", ctypes.c_int64),  # its argument
    )


class Series:
    """Calls on all threads, each begun when all threads have ended the one before.

    The calls are kept by whoever made them: this holds their addresses only.

    Raises:
        RuntimeError: there is no team of threads (`team.openmp`).
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        threads = team.openmp()
        if threads is None:
            raise RuntimeError("a series of kernels needs OpenMP")
        flat = [address for one in calls for address in one]
        self._calls = (ctypes.c_int64 * len(flat))(*flat)
        barrier, meeting = threads.barrier
        self._given = _Arguments(
            calls=ctypes.addressof(self._calls),
            count=len(calls),
            barrier=barrier,
            meeting=meeting,
        )
        self.call = Call(_kernel(), ctypes.addressof(self._given))


def can_run_series() -> bool:
    """Whether there is a team of threads here, and a series on it works."""
    return team.openmp() is not None and works("series of kernels", "one at a time", _check)


def _check() -> None:
    """Raises if a thread begins a call before the others have ended the one before."""
    numbers = torch.zeros(3, dtype=torch.int64)
    given = _Witness(*(numbers.data_ptr() + 8 * i for i in range(len(numbers))))
    at = ctypes.addressof(given)
    series = Series([Call(_working_kernel(), at), Call(_watching_kernel(), at)])
    series.call.run()
    expect(numbers[1:], torch.tensor([_TICKETS, 0]))


_TICKETS = 64


class _Witness(ctypes.Structure):
    """Addresses of int64, all 0 at the beginning."""

    _fields_ = (
        ("counter", ctypes.c_int64),
        ("done", ctypes.c_int64),  # tickets of the first call
        ("early", ctypes.c_int64),  # threads that did not wait for them
    )


@cache
def _working_kernel() -> int:
    code = revision()

    def kernel(pointer):  # type: ignore[no-untyped-def]
        a = carray(pointer, 1)[0]
        while code >= 0 and take_ticket(a.counter) < _TICKETS:
            take_ticket(a.done)

    return compiled(kernel, _Witness)


@cache
def _watching_kernel() -> int:
    code = revision()

    def kernel(pointer):  # type: ignore[no-untyped-def]
        a = carray(pointer, 1)[0]
        if code >= 0 and int_at(a.done, 0) < _TICKETS:
            take_ticket(a.early)

    return compiled(kernel, _Witness)


@cache
def _kernel() -> int:
    code = revision()

    def kernel(pointer):  # type: ignore[no-untyped-def]
        a = carray(pointer, 1)[0]
        for i in range(a.count if code >= 0 else 0):
            if i > 0:
                call(a.barrier, a.meeting)
            call(int_at(a.calls, 2 * i), int_at(a.calls, 2 * i + 1))

    return compiled(kernel, _Arguments)
