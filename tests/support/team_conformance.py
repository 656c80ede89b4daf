"""What the threads of torch's OpenMP runtime do in this process, as JSON."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import numba
import torch

from executor.compiled import team
from executor.compiled.access import int_at, take_ticket
from executor.compiled.faults import faults
from executor.compiled.series import Call, Series

TICKETS, ROUNDS, STAGES = 1000, 40, 25


@numba.cfunc("void(int64)")  # type: ignore[untyped-decorator]
def take_all(at: int) -> None:
    """[counter, calls, tickets ...]: count the call and mark every ticket."""
    take_ticket(at + 8)
    ticket = take_ticket(at)
    while ticket < TICKETS:
        take_ticket(at + 16 + 8 * ticket)
        ticket = take_ticket(at)


@numba.cfunc("void(int64)")  # type: ignore[untyped-decorator]
def pass_stage(at: int) -> None:
    """[stage, before, this, early]: addresses of int64. Count the thread in `this`, and in
    `early` if not all threads have been counted in `before`, which is a stage's number of them.
    """
    if int_at(int_at(at, 1), 0) < int_at(at, 0):
        take_ticket(int_at(at, 3))
    take_ticket(int_at(at, 2))


def calls(threads: int) -> dict[str, Any]:
    """Of one function on so many threads."""
    torch.set_num_threads(threads)
    numbers = torch.zeros(2 + TICKETS, dtype=torch.int64)
    team.run_together(take_all.address, numbers.data_ptr())
    return {"calls": int(numbers[1]), "each_ticket_once": bool((numbers[2:] == 1).all())}


def early(threads: int) -> int:
    """How often a thread passed a barrier before all others had come to it."""
    torch.set_num_threads(threads)
    counts = torch.zeros(STAGES + 2, dtype=torch.int64)
    counts[0] = threads
    stage = [
        torch.tensor([threads, *(counts.data_ptr() + 8 * i for i in (s, s + 1, STAGES + 1))])
        for s in range(STAGES)
    ]
    series = Series([Call(pass_stage.address, given.data_ptr()) for given in stage])
    for _ in range(ROUNDS):
        counts[1:-1] = 0
        series.call.run()
        assert counts[1:-1].tolist() == [threads] * STAGES
    return int(counts[-1])


def os_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def added_threads(threads: int) -> int:
    """How many the process has more after a run beside torch's own work on as many."""
    torch.set_num_threads(threads)
    torch.ones(1 << 20).exp_()
    before = os_threads()
    calls(threads)
    return os_threads() - before


def from_another_thread(threads: int) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: answers.append(calls(threads)))
    thread.start()
    thread.join()
    return answers


def main() -> None:
    runtime = team.openmp()
    answers = {
        "name": None if runtime is None else runtime.name,
        "calls": {threads: calls(threads) for threads in (4, 1, 3)},
        "early": early(4),
        "added_threads": added_threads(4),
        "from_another_thread": from_another_thread(2),
        "faults": [str(fault) for fault in faults()],
    }
    sys.stdout.write(json.dumps(answers))


if __name__ == "__main__":
    main()
