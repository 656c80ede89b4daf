"""What a person is told of the kernels of this process."""

from __future__ import annotations

from executor.compiled import team
from executor.compiled.emit import vector_width
from executor.compiled.faults import faults


def summary() -> str:
    """One line: vectors, threads, and every kernel that was found not to work so far."""
    runtime = team.openmp()
    threads = "one thread" if runtime is None else f"torch's threads ({runtime.name})"
    parts = [f"vectors of {vector_width()} floats on {threads}", *map(str, faults())]
    return "; ".join(parts)
