"""Run compiled code on the very threads that torch computes with.

Numba's own threads would be a second team on the same cores, each spinning while it waits for
the other. torch's wheels for Linux carry GNU OpenMP; a parallel region entered through its
C interface from the thread that calls torch gets torch's team.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch


@cache
def openmp() -> ctypes.CDLL | None:
    """The OpenMP library that torch has loaded; None where it is not GNU's or not to be found."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return None
    loaded = {line.split()[-1] for line in maps.read_text().splitlines() if "libgomp" in line}
    folder = str(Path(torch.__file__).parent.parent)
    own = sorted(path for path in loaded if path.startswith(folder)) or sorted(loaded)
    if not own:
        return None
    library = ctypes.CDLL(own[0])
    library.GOMP_parallel.argtypes = [
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint,
    ]  # fmt: skip
    library.GOMP_parallel.restype = None
    return library


def run_together(function: int, arguments: int) -> None:
    """Call the C function void(void*) at address `function` once on each of torch's threads.

    All get the same `arguments` and share the work out among themselves. Without OpenMP, one
    call does everything.
    """
    library = openmp()
    if library is None:
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)(arguments)
        return
    library.GOMP_parallel(function, arguments, torch.get_num_threads(), 0)
