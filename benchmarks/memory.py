"""`scripts/bench --memory`: what a worker's peak memory is made of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from benchmarks.peers import OURS, PEERS, python_of
from benchmarks.process import WorkerProcess
from benchmarks.quiet import quiet
from benchmarks.setup import Setup
from benchmarks.standing import worker_options
from benchmarks.workload_files import write_workload

MB = 10**6
ALLOWED_REST = 500 * MB
"""Of a worker's peak, beside its packed weights and its cache."""
_CACHE_BYTES = 256 << 20
"""So small that it does not hide what loading needs, and that a short run fills it."""
_REQUESTS, _MOST_TOKENS = 16, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """In bytes. `packed` are all weights as the engine keeps them, `cache` the keys and values
    that it says it has room for, all of them written to.

    `libraries` are resident before the model is loaded; `loaded` and `peak` are the most that the
    process has had (VmHWM) once it is loaded, and at the end of the run. Pages of mapped files
    count. `anonymous` and `mapped` are what is resident at the end.
    """

    checkpoint: int
    packed: int
    cache: int
    libraries: int
    loaded: int
    peak: int
    anonymous: int
    mapped: int

    @property
    def rest(self) -> int:
        """The peak without weights and cache."""
        return self.peak - self.packed - self.cache

    def lines(self) -> Iterator[str]:
        """A line for each figure, in MB of a million bytes."""
        yield _line("checkpoint", self.checkpoint, "its weights on disk")
        yield _line("packed weights", self.packed, "as the engine keeps them")
        yield _line("cache", self.cache, "keys and values, all written to")
        yield _line("libraries", self.libraries, "resident before the model is loaded")
        yield _line("peak of loading", self.loaded, "VmHWM")
        yield _line("peak", self.peak, "VmHWM after the run")
        yield _line("at the end", self.anonymous, "resident, of no file")
        yield _line("", self.mapped, "resident, of mapped files")
        yield _line("peak − packed − cache", self.rest, self._verdict())

    def _verdict(self) -> str:
        over = self.rest - ALLOWED_REST
        allowed = f"allowed: {ALLOWED_REST / MB:,.0f} MB"
        return f"{allowed}, {over / MB:,.1f} MB too much" if over > 0 else allowed


def _line(name: str, size: int, meaning: str) -> str:
    return f"{name:<22}{size / MB:>10,.1f} MB  {meaning}"


def measure_memory(setup: Setup, count: int | None) -> MemoryUse:
    """Of a short run of `mixed` in a process of its own.

    Raises WorkerDiedError when it cannot run.
    """
    setup.folder.mkdir(parents=True, exist_ok=True)
    file = setup.folder / f"{setup.model.name}-memory.json"
    most = setup.most_tokens or _MOST_TOKENS
    write_workload("mixed", setup.model.folder, count or _REQUESTS, file, most_tokens=most)
    with ExitStack() as stack:
        log = stack.enter_context((setup.folder / "peers.log").open("a"))
        python = python_of(PEERS[OURS], setup.folder)
        worker = WorkerProcess(python, "memory.py", memory_options(setup), log)
        stack.enter_context(quiet(setup.lock, exclusive=True))
        reply = stack.enter_context(worker).answer(file)
    return MemoryUse(checkpoint=checkpoint_bytes(setup), **reply["memory"])


def memory_options(setup: Setup) -> dict[str, Any]:
    options = worker_options(OURS, setup)
    return {**options, "settings": {"kv_cache_memory": _CACHE_BYTES, **options["settings"]}}


def checkpoint_bytes(setup: Setup) -> int:
    return sum(file.stat().st_size for file in setup.model.folder.glob("*.safetensors"))
