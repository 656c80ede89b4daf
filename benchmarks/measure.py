"""Engines in turn on the same workload, in one run: ours, theirs, ours, theirs, …"""

from __future__ import annotations

import json
import platform
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.agreement import Answers, agreement
from benchmarks.peers import OURS, PEERS, exported, python_of
from benchmarks.setup import Setup
from benchmarks.standing import Standing
from benchmarks.workload_files import write_workload

Record = dict[str, Any]


def prepare(names: Sequence[str], setup: Setup) -> None:
    """Make whatever environments and exports are not there yet. Takes minutes, unlocked."""
    setup.folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        python_of(PEERS[name], setup.folder)
        if PEERS[name].needs == "export":
            exported(setup.model, setup.folder)


def measure(names: Sequence[str], workload: str, count: int, setup: Setup) -> list[Record]:
    """Ours and the named peers, `repeats` times in turn; the records, which are also appended.

    A pass at a time holds the machine's lock, if there is one.

    Raises:
        ValueError: an engine's answers do not have the lengths that were asked for.
    """
    file, size = _written(workload, count, setup)
    common = {"run": uuid.uuid4().hex[:8], "model": setup.model.name, "workload": workload, **size}
    records: list[Record] = []
    with ExitStack() as stack:
        log = stack.enter_context((setup.folder / "peers.log").open("a"))
        standing = Standing(stack, setup, log)
        for repeat in range(setup.repeats):
            expected: Answers | None = None
            for name in (OURS, *names):
                reply = standing.answer(name, file)
                answers = reply.pop("answers")
                expected = answers if expected is None else expected
                counted = _counted(name, answers, expected, size)
                rate = counted["generated_tokens"] / reply["wall_s"]
                record = {
                    **common,
                    "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                    "engine": name,
                    "repeat": repeat,
                    **counted,
                    "output_tok_s": rate,
                    **reply,
                    "machine": _machine(),
                }
                _append(setup.raw, record)
                records.append(record)
                sys.stderr.write(
                    f"{name} {workload}: {record['wall_s']:.1f} s, {rate:.0f} tok/s,"
                    f" load {record['load1']:.1f}\n"
                )
    return records


def _written(workload: str, count: int, setup: Setup) -> tuple[Path, Record]:
    """The workload's file, and what it has."""
    file = setup.folder / f"{setup.model.name}-{workload}-{count}.json"
    return file, write_workload(
        workload,
        setup.model.folder,
        count,
        file,
        most_tokens=setup.most_tokens,
        natural=setup.natural,
    )


def _counted(name: str, answers: Answers, expected: Answers, size: Record) -> Record:
    """How many tokens there are, and how many are those of `expected`."""
    generated = sum(map(len, answers))
    if not size["natural"] and generated != size["output_tokens"]:
        raise ValueError(
            f"{name} made {generated:,} tokens where {size['output_tokens']:,} were asked for."
        )
    same = agreement(expected, answers)
    return {
        "generated_tokens": generated,
        "equal_answers": same.answers,
        "equal_tokens": same.tokens,
        "equal_share": same.share,
    }


def grow(counts: Sequence[int], setup: Setup) -> Iterator[Record]:
    """Ours on more and more requests of `mixed`, each count in a process of its own: wall time a
    request and peak memory."""
    setup.folder.mkdir(parents=True, exist_ok=True)
    for count in counts:
        file, size = _written("mixed", count, setup)
        with ExitStack() as stack, (setup.folder / "peers.log").open("a") as log:
            reply = Standing(stack, setup, log).answer(OURS, file)
        reply.pop("answers")
        record = {
            "run": "growth",
            "engine": OURS,
            "model": setup.model.name,
            **size,
            "workload": "growth",
            "wall_ms_per_request": 1000 * reply["wall_s"] / count,
            **reply,
            "machine": _machine(),
        }
        _append(setup.raw, record)
        yield record


def _append(raw: Path, record: Record) -> None:
    with raw.open("a") as file:
        file.write(json.dumps(record) + "\n")


def _machine() -> Record:
    return {
        "python": platform.python_version(),
        "torch": version("torch"),
        "transformers": version("transformers"),
        "processor": platform.processor() or platform.machine(),
    }
