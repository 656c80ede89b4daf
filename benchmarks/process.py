"""A worker in a process group of its own, asleep while another one is measured."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import psutil

from benchmarks.peers import WORKERS

ROOT = Path(__file__).parents[1]
_GRACE_SECONDS = 10.0


def _high_water(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"VmHWM:\s*(\d+) kB", status)
    return int(found[1]) if found else 0


class WorkerDiedError(RuntimeError):
    """A worker ended before it answered."""


class WorkerProcess:
    """Loads on entry. An idle engine's threads may spin, so the whole group is stopped (SIGSTOP)
    between workloads."""

    def __init__(self, python: Path, worker: str, options: Mapping[str, Any], log: IO[str]) -> None:
        self._command = [str(python), str(WORKERS / worker), json.dumps(options)]
        self._log = log
        self.version = ""
        self.settings: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(  # noqa: S603
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        try:
            hello = self._receive()
        except WorkerDiedError:
            self._end()
            raise
        self.version, self.settings = hello["version"], hello["settings"]
        self._signal(signal.SIGSTOP)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._signal(signal.SIGCONT)
        self._end()

    def _end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()
        self._process.stdout.close()

    def answer(self, workload: Path) -> dict[str, Any]:
        """What the worker measured, and its memory; raises WorkerDiedError when it died."""
        self._signal(signal.SIGCONT)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"workload": str(workload)}) + "\n")
        self._process.stdin.flush()
        try:
            return {**self._receive(), "peak_rss_mib": self._peak_memory() / 1024}
        finally:
            self._signal(signal.SIGSTOP)

    def _peak_memory(self) -> int:
        """KiB that its processes had at most, each at its own time."""
        me = psutil.Process(self._process.pid)
        return sum(_high_water(process.pid) for process in (me, *me.children(recursive=True)))

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            name = Path(self._command[1]).name
            raise WorkerDiedError(f"The worker {name} ended early; {self._log.name} says why.")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return
