"""Engines in turn on the same workload, in one run: ours, theirs, ours, theirs, …"""

from __future__ import annotations

import json
import platform
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

from benchmarks.peers import OURS, PEERS, exported, python_of
from benchmarks.process import WorkerProcess
from benchmarks.quiet import quiet
from benchmarks.workload_files import write_workload

Record = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a measurement needs beside its peers; `raw` is the file that records go to."""

    model: Path
    gguf: Path | None
    folder: Path
    raw: Path
    threads: int
    repeats: int
    lock: Path | None


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
    """
    file = setup.folder / f"{workload}-{count}.json"
    size = write_workload(workload, setup.model, count, file)
    run = uuid.uuid4().hex[:8]
    records: list[Record] = []
    log_path = setup.folder / "peers.log"
    with ExitStack() as stack:
        log = stack.enter_context(log_path.open("a"))
        standing = _Standing(stack, setup, log)
        expected: list[list[int]] | None = None
        for repeat in range(setup.repeats):
            for name in (OURS, *names):
                reply = standing.answer(name, file)
                answers = reply.pop("answers")
                expected = answers if name == OURS else expected
                record = {
                    "run": run,
                    "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                    "engine": name,
                    "workload": workload,
                    **size,
                    "repeat": repeat,
                    "output_tok_s": size["output_tokens"] / reply["wall_s"],
                    "equal_answers": sum(map(list.__eq__, answers, expected or ())),
                    **reply,
                    "machine": _machine(),
                }
                assert sum(map(len, answers)) == size["output_tokens"], f"{name} answers short"
                _append(setup.raw, record)
                records.append(record)
                sys.stderr.write(
                    f"{name} {workload}: {record['wall_s']:.1f} s, load {record['load1']:.1f}\n"
                )
    return records


class _Standing:
    """The workers that are loaded; one that must be fresh is loaded for each pass."""

    def __init__(self, stack: ExitStack, setup: Setup, log: IO[str]) -> None:
        self._stack = stack
        self._setup = setup
        self._log = log
        self._loaded: dict[str, WorkerProcess] = {}

    def answer(self, name: str, workload: Path) -> Record:
        if PEERS[name].fresh:
            with ExitStack() as stack:
                return self._pass(self._load(name, stack), workload)
        if name not in self._loaded:
            self._loaded[name] = self._load(name, self._stack)
        return self._pass(self._loaded[name], workload)

    def _load(self, name: str, stack: ExitStack) -> WorkerProcess:
        kind, setup = PEERS[name], self._setup
        options: Record = {
            "model": str(setup.model),
            "threads": setup.threads,
            "slots": kind.slots,
            **kind.options,
        }
        if kind.needs == "export":
            options["export"] = str(exported(setup.model, setup.folder))
        if kind.needs == "gguf":
            options["gguf"] = str(setup.gguf)
        worker = WorkerProcess(python_of(kind, setup.folder), kind.worker, options, self._log)
        with quiet(setup.lock, exclusive=False):
            return stack.enter_context(worker)

    def _pass(self, worker: WorkerProcess, workload: Path) -> Record:
        with quiet(self._setup.lock, exclusive=True):
            reply = worker.answer(workload)
        return {"version": worker.version, "settings": worker.settings, **reply}


def grow(counts: Sequence[int], setup: Setup, *, most_tokens: int | None) -> Iterator[Record]:
    """Ours on more and more requests of `mixed`, each count in a process of its own: wall time a
    request and peak memory."""
    setup.folder.mkdir(parents=True, exist_ok=True)
    for count in counts:
        file = setup.folder / f"growth-{count}.json"
        size = write_workload("mixed", setup.model, count, file, most_tokens=most_tokens)
        with ExitStack() as stack, (setup.folder / "peers.log").open("a") as log:
            reply = _Standing(stack, setup, log).answer(OURS, file)
        reply.pop("answers")
        record = {
            "run": "growth",
            "engine": OURS,
            "workload": "growth",
            **size,
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
