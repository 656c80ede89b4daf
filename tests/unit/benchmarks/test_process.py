"""A worker that is loaded, asked and put to sleep, with an engine that is a stand-in."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from benchmarks import process
from benchmarks.peers import WORKERS
from benchmarks.process import WorkerDiedError, WorkerProcess

ECHO = """
from serve import Peer, serve

def load(options):
    print("what an engine prints is no reply")
    return Peer(version="9", settings=options, answer=answer)

def answer(work):
    return work.prompts, {"length": work.max_tokens}

serve(load)
"""


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerProcess]:
    shutil.copy(WORKERS / "serve.py", tmp_path)
    (tmp_path / "echo.py").write_text(ECHO)
    monkeypatch.setattr(process, "WORKERS", tmp_path)
    with (tmp_path / "log").open("w") as log:
        yield WorkerProcess(Path(sys.executable), "echo.py", {"slots": 3}, log)


def workers() -> list[psutil.Process]:
    """Other tests of this process may have servers of their own."""
    return [child for child in psutil.Process().children() if _is_worker(child)]


def _is_worker(child: psutil.Process) -> bool:
    return any(word.endswith("echo.py") for word in child.cmdline())


def wait_until_asleep() -> None:
    """Hangs, and so fails, if it never is."""
    [child] = workers()
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)


def test_a_worker_answers_and_sleeps_in_between(worker: WorkerProcess, tmp_path: Path) -> None:
    workload = tmp_path / "workload.json"
    workload.write_text(json.dumps({"prompts": [[1, 2]], "max_tokens": [4]}))
    with worker:
        assert (worker.version, worker.settings) == ("9", {"slots": 3})
        for _ in range(2):
            wait_until_asleep()
            reply = worker.answer(workload)
            assert (reply["answers"], reply["length"]) == ([[1, 2]], [4])
            assert reply["wall_s"] >= 0
            assert reply["peak_rss_mib"] > 1
    assert workers() == []
    assert "no reply" in (tmp_path / "log").read_text()


def test_a_worker_that_dies_is_an_error(worker: WorkerProcess, tmp_path: Path) -> None:
    (tmp_path / "echo.py").write_text("raise SystemExit(3)")
    with pytest.raises(WorkerDiedError, match=r"worker echo.py ended early; .*log says why"):
        worker.__enter__()
