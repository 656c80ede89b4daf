"""Run compiled code on the very threads that torch computes with.

Numba's own threads would be a second team on the same cores, each spinning while it waits for
the other. A parallel region of torch's own OpenMP runtime, entered from the thread that calls
torch, gets torch's team.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Protocol

import torch

from executor.compiled.faults import works
from executor.compiled.gnu_team import GnuTeam
from executor.compiled.llvm_team import LlvmTeam
from executor.compiled.openmp import loaded_runtime


class Team(Protocol):
    """The threads of an OpenMP runtime."""

    @property
    def name(self) -> str:
        """The runtime's, for people."""

    @property
    def barrier(self) -> tuple[int, int]:
        """Addresses of a function void(void*) and of its argument. It returns in each thread of a
        `run` once all of them have called it."""

    def run(self, function: int, given: int, threads: int) -> None:
        """Call the C function void(void*) at an address once on each of so many threads, the
        calling one included, and return when all have returned. The runtime may use fewer."""


def make_team(library: ctypes.CDLL) -> Team:
    """The threads of this OpenMP runtime.

    Raises:
        AttributeError: it is neither LLVM's nor GNU's.
    """
    # LLVM's has GNU's functions as well, for programs that were compiled for those.
    is_llvm = hasattr(library, "__kmpc_fork_call")
    return LlvmTeam(library) if is_llvm else GnuTeam(library)


@cache
def openmp() -> Team | None:
    """The threads that torch computes with; None where they cannot be entered."""
    library = loaded_runtime()
    if library is None:
        return None
    usable = works("team of threads", "one thread", lambda: make_team(library))
    return make_team(library) if usable else None


def run_together(function: int, arguments: int) -> None:
    """Call the C function void(void*) at address `function` once on each of torch's threads.

    All get the same `arguments` and share the work out among themselves. Without OpenMP, one
    call does everything.
    """
    team = openmp()
    if team is None:
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)(arguments)
        return
    team.run(function, arguments, torch.get_num_threads())
