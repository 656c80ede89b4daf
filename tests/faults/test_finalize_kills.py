"""kill -9 at each point of finalizing: another try publishes every line once."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import select

from batchjobs.deployment import Deployment
from batchjobs.finalize import finalize
from batchjobs.models import File
from batchjobs.queue import jobs
from batchjobs.states import JobState
from batchjobs.store.layout import job_prefix
from tests.support.jobs import (
    complete,
    load_job,
    must_claim,
    open_deployment,
    read_records,
    request_line,
    start_job,
)

DIES = """
import os, sys
from pathlib import Path
from batchjobs import finalize
from batchjobs.files import FileWriter
from batchjobs.store.directory import DirectoryStore
from tests.support.jobs import open_deployment

class Countdown:
    def __init__(self, calls, function):
        self.calls, self.function = calls, function
    def __call__(self, *args, **kwargs):
        self.calls -= 1
        if self.calls < 0:
            os.kill(os.getpid(), 9)
        return self.function(*args, **kwargs)

home, job_id, owner, name, calls = sys.argv[1:]
place = {"finalize": finalize, "store": DirectoryStore, "writer": FileWriter}[owner]
countdown = Countdown(int(calls), getattr(place, name))
setattr(place, name, lambda *args, **kwargs: countdown(*args, **kwargs))
with open_deployment(Path(home)) as deployment:
    finalize.finalize(deployment, job_id)
"""

POINTS = {
    "before its manifest": ("finalize", "write_manifest", 0),
    "before it writes": ("finalize", "create_file", 0),
    "between its two files": ("finalize", "create_file", 1),
    "halfway through the lines": ("writer", "write", 4),
    "before it publishes": ("finalize", "_commit", 0),
    "within the transaction": ("finalize", "add_row", 1),
    "before it removes the parts": ("finalize", "_remove_parts", 0),
    "halfway through removing": ("store", "delete", 2),
}


def cancelled_job(deployment: Deployment) -> str:
    requests = [request_line(f"id-{number}") for number in range(1, 9)]
    job_id = start_job(deployment, requests)
    for failed in ([], [3], [5, 6]):
        complete(deployment, must_claim(deployment), failed=failed)
    with deployment.database.write() as session:
        jobs.cancel(session, deployment.clock, job_id)
    return job_id


def finalize_and_die(home: Path, job_id: str, point: str) -> int:
    owner, name, calls = POINTS[point]
    return subprocess.run(
        [sys.executable, "-c", DIES, str(home), job_id, owner, name, str(calls)],
        check=False,
        timeout=60,
        cwd=Path(__file__).parents[2],
    ).returncode


@pytest.mark.parametrize("point", POINTS)
def test_job_is_published_once_after_a_kill(tmp_path: Path, point: str) -> None:
    with open_deployment(tmp_path) as deployment:
        job_id = cancelled_job(deployment)
        assert finalize_and_die(tmp_path, job_id, point) == -signal.SIGKILL
        finalize(deployment, job_id)
        job = load_job(deployment, job_id)
        assert job.status is JobState.CANCELLED
        assert (job.completed_lines, job.failed_lines) == (3, 3)
        output = read_records(deployment, job.output_file_id)
        errors = read_records(deployment, job.error_file_id)
        assert [each["custom_id"] for each in output] == ["id-1", "id-2", "id-4"]
        assert [each["custom_id"] for each in errors] == [
            f"id-{number}" for number in (3, 5, 6, 7, 8)
        ]
        assert list(deployment.store.list(job_prefix(job_id))) == []
        with deployment.database.read() as session:
            produced = session.scalars(select(File.id).where(File.purpose == "batch_output")).all()
        assert sorted(produced) == sorted([job.output_file_id or "", job.error_file_id or ""])
