"""The engines of a run: loaded once, asleep while it is not their turn."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from benchmarks.peers import PEERS, exported, is_ours, python_of
from benchmarks.process import WorkerProcess
from benchmarks.quiet import quiet
from benchmarks.setup import Setup

Record = dict[str, Any]

_MAX_MODEL_LEN = 1024
"""Tokens of the longest request of any workload, generously; natural answers may be longer."""


class Standing:
    """The workers that are loaded; one that must be fresh is loaded for each pass."""

    def __init__(self, stack: ExitStack, setup: Setup, log: IO[str]) -> None:
        self._stack = stack
        self._setup = setup
        self._log = log
        self._loaded: dict[str, WorkerProcess] = {}

    def answer(self, name: str, workload: Path) -> Record:
        if PEERS[name].fresh or self._setup.fresh:
            with ExitStack() as stack:
                return self._pass(self._load(name, stack), workload)
        if name not in self._loaded:
            self._loaded[name] = self._load(name, self._stack)
        return self._pass(self._loaded[name], workload)

    def _load(self, name: str, stack: ExitStack) -> WorkerProcess:
        kind = PEERS[name]
        python = python_of(kind, self._setup.folder)
        worker = WorkerProcess(python, kind.worker, worker_options(name, self._setup), self._log)
        with quiet(self._setup.lock, exclusive=False):
            return stack.enter_context(worker)

    def _pass(self, worker: WorkerProcess, workload: Path) -> Record:
        with quiet(self._setup.lock, exclusive=True):
            reply = worker.answer(workload)
        return {"version": worker.version, "settings": worker.settings, **reply}


def worker_options(name: str, setup: Setup) -> Record:
    """What the worker of the engine `name` is started with."""
    kind, model = PEERS[name], setup.model
    options: Record = {
        "model": str(model.folder),
        "threads": setup.threads,
        "slots": kind.slots,
        "max_model_len": _MAX_MODEL_LEN * (2 if setup.natural else 1),
        "kv_cache_gib": model.kv_cache_gib,
        **kind.options,
    }
    if is_ours(name):
        options["settings"] = {**model.settings, **kind.options["settings"]}
    if kind.needs == "export":
        options["export"] = str(exported(model, setup.folder))
    if kind.needs == "gguf":
        options["gguf"] = str(setup.gguf)
    return options
