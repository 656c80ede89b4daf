"""A line that kills every worker that runs it ends in the error file; the rest complete."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from batchjobs.deployment import Deployment
from batchjobs.states import JobState
from tests.support.engines import add_models
from tests.support.jobs import (
    MODEL,
    load_job,
    open_deployment,
    read_records,
    request_line,
    start_job,
)

MOST_DEATHS = 16
# Each worker is a fork of one process that has loaded what they need, which takes a second.
WORKERS = """
import os, sys
from pathlib import Path
from batchjobs.worker.runner import run_jobs
from batchjobs.worker.stop import StopSignal
from executor.fake import HashModel
from tests.support.engines import FakeEngines
from tests.support.jobs import open_deployment

forward = HashModel.forward
def dies_of_poison(self, spans):
    for span in spans:
        if b"poison" in bytes(t for t in span.sequence.tokens if t < 256):
            os.kill(os.getpid(), 9)
    return forward(self, spans)
HashModel.forward = dies_of_poison

def work():
    stop = StopSignal(grace_seconds=9, forced_exit=9)
    with open_deployment(Path(sys.argv[1])) as deployment:
        run_jobs(deployment, engines=FakeEngines(), stop=stop)

for _ in range(int(sys.argv[2])):
    worker = os.fork()
    if worker == 0:
        work()
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    print(status, flush=True)
    if status == 0:
        break
"""


def ends_of_workers(home: Path) -> list[int]:
    """The exit statuses of one after the other, until there is no work left."""
    said = subprocess.run(
        [sys.executable, "-c", WORKERS, str(home), str(MOST_DEATHS + 1)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
        cwd=Path(__file__).parents[2],
    ).stdout
    return [int(status) for status in said.split()]


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    opened = open_deployment(tmp_path)
    add_models(opened, MODEL)
    return opened


def lines(count: int, *, poisoned: tuple[int, ...]) -> list[dict[str, object]]:
    requests = [request_line(f"line-{number}") for number in range(count)]
    for number, request in enumerate(requests):
        word = "poison" if number in poisoned else "water"
        request["body"] |= {
            "messages": [{"role": "user", "content": f"Drink {word}."}],
            "max_tokens": 3,
            "ignore_eos": True,
        }
    return requests


@pytest.mark.timeout(600)
def test_lines_that_kill_their_worker_are_found_and_the_rest_completes(
    deployment: Deployment, tmp_path: Path
) -> None:
    job_id = start_job(deployment, lines(12, poisoned=(2, 7)), shard_max_lines=6)
    *deaths, last = ends_of_workers(tmp_path)
    assert last == 0
    assert set(deaths) == {-signal.SIGKILL}
    job = load_job(deployment, job_id)
    assert job.status == JobState.COMPLETED
    failed = read_records(deployment, job.error_file_id)
    assert [record["custom_id"] for record in failed] == ["line-2", "line-7"]
    assert {record["error"]["code"] for record in failed} == {"worker_crashed"}
    assert [record["response"] for record in failed] == [None, None]
    assert len(read_records(deployment, job.output_file_id)) == 10
