"""Threads of GNU OpenMP, which torch's wheels for Linux carry."""

from __future__ import annotations

import ctypes
from typing import Any


class GnuTeam:
    """See `team.Team`.

    Raises:
        AttributeError: the library is no GNU OpenMP.
    """

    name = "GNU OpenMP"

    def __init__(self, library: ctypes.CDLL) -> None:
        self._parallel: Any = library["GOMP_parallel"]
        self._parallel.argtypes = [
            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint,
        ]  # fmt: skip
        self._parallel.restype = None
        # GOMP_barrier takes no argument: in C's calling conventions on x86-64 and AArch64 a
        # function may be given more registers than it reads.
        barrier = ctypes.cast(library["GOMP_barrier"], ctypes.c_void_p).value
        self.barrier = (barrier or 0, 0)

    def run(self, function: int, given: int, threads: int) -> None:
        self._parallel(function, given, threads, 0)
