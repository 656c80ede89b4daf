"""A Celery worker on a real broker: messages wake it, and it does not need them."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from batchjobs.celery_bell import CeleryBell, queue_name
from batchjobs.deployment import Deployment
from batchjobs.intake import validate
from batchjobs.states import TERMINAL, JobState
from tests.support.engines import add_models
from tests.support.jobs import (
    MODEL,
    add_input,
    create_job,
    load_job,
    open_deployment,
    request_line,
)
from tests.support.servers.valkey import Valkey

WORKER = """
import sys
from functools import partial
from pathlib import Path
from batchjobs.celery_bell import CeleryBell
from batchjobs.worker.celery_worker import run_worker
from batchjobs.worker.runner import work_on
from batchjobs.worker.stop import StopSignal
from tests.support.engines import FakeEngines
from tests.support.jobs import MODEL, open_deployment

home, broker_url, poll_seconds = sys.argv[1:]
stop = StopSignal(grace_seconds=20, forced_exit=5)
with open_deployment(Path(home), poll_seconds=float(poll_seconds)) as deployment:
    looked = lambda report: print("worked", flush=True)
    work = partial(
        work_on, deployment, engines=FakeEngines(), stop=stop, models={MODEL}, on_report=looked
    )
    print("started", flush=True)
    run_worker(CeleryBell(broker_url).app, models=[MODEL], stop=stop, work=work)
print("ended", flush=True)
"""

WAIT_SECONDS = 60
NOBODY = "redis://:secret-of-nobody@127.0.0.1:1/0"


@contextmanager
def worker(home: Path, broker_url: str, *, poll_seconds: float) -> Iterator[None]:
    """A worker that ends cleanly on SIGTERM at the end of the context."""
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, str(home), broker_url, str(poll_seconds)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "started\n"
            yield
            process.send_signal(signal.SIGTERM)
            said, _ = process.communicate(timeout=WAIT_SECONDS)
            assert said.endswith("ended\n")
            assert process.returncode == 0
        finally:
            process.kill()


def wait_until_ended(deployment: Deployment, job_id: str) -> JobState:
    deadline = time.monotonic() + WAIT_SECONDS
    while (status := load_job(deployment, job_id).status) not in TERMINAL:
        assert time.monotonic() < deadline, f"the job is still {status}"
        time.sleep(0.02)
    return status


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with open_deployment(tmp_path) as opened:
        add_models(opened, MODEL)
        yield opened


def new_job(deployment: Deployment) -> str:
    requests = [request_line(f"line-{number}") for number in range(3)]
    for request in requests:
        request["body"]["max_tokens"] = 3
    job_id = create_job(deployment, add_input(deployment, requests).id)
    validate(deployment, job_id)  # unless a worker was faster
    return job_id


def test_message_wakes_a_worker_that_would_sleep_for_an_hour(
    deployment: Deployment, tmp_path: Path, valkey: Valkey
) -> None:
    bell = CeleryBell(valkey.url)
    with worker(tmp_path, valkey.url, poll_seconds=3600):
        for _ in range(2):
            job_id = new_job(deployment)
            for _ in range(20):  # more often than needed does no harm
                bell.ring([MODEL])
            assert wait_until_ended(deployment, job_id) == JobState.COMPLETED


def test_worker_finds_its_work_without_a_broker(deployment: Deployment, tmp_path: Path) -> None:
    with worker(tmp_path, NOBODY, poll_seconds=0.1):
        assert wait_until_ended(deployment, new_job(deployment)) == JobState.COMPLETED


def test_worker_outlives_its_broker(deployment: Deployment, tmp_path: Path, valkey: Valkey) -> None:
    bell = CeleryBell(valkey.url)
    with worker(tmp_path, valkey.url, poll_seconds=0.5):
        first = new_job(deployment)
        bell.ring([MODEL])
        assert wait_until_ended(deployment, first) == JobState.COMPLETED
        valkey.kill()
        lost = new_job(deployment)
        bell.ring([MODEL])
        assert wait_until_ended(deployment, lost) == JobState.COMPLETED
        valkey.start()
        assert wait_until_ended(deployment, new_job(deployment)) == JobState.COMPLETED


FAILING = """
import sys
from batchjobs.celery_bell import celery_app
from batchjobs.worker.celery_worker import run_worker
from batchjobs.worker.stop import StopSignal

def work():
    raise KeyError("no such model")

try:
    run_worker(
        celery_app(sys.argv[1]),
        models=["m"],
        stop=StopSignal(grace_seconds=20, forced_exit=5),
        work=work,
    )
except KeyError as failed:
    print("raised", failed)
"""


@pytest.mark.parametrize("has_broker", [True, False])
def test_worker_whose_engine_fails_ends_with_the_reason(valkey: Valkey, has_broker: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAILING, valkey.url if has_broker else NOBODY],
        capture_output=True,
        text=True,
        check=True,
        timeout=WAIT_SECONDS,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout == "raised 'no such model'\n"


LOGGING = """
import logging
import sys
import threading
from celery import signals
from batchjobs.celery_bell import celery_app
from batchjobs.obs.logs import configure, log_fields
from batchjobs.settings import Settings
from batchjobs.worker.celery_worker import run_worker
from batchjobs.worker.stop import StopSignal

ready = threading.Event()

def on_ready(**_):
    ready.set()

signals.worker_ready.connect(on_ready)
configure(Settings.load(broker_url=sys.argv[1], log_format="json"), default_level="info")

def work():
    assert ready.wait(30)
    with log_fields(worker="w"):
        logging.getLogger("batchjobs.room").info("Works with %s", sys.argv[1])

run_worker(
    celery_app(sys.argv[1]),
    models=["m"],
    stop=StopSignal(grace_seconds=20, forced_exit=5),
    work=work,
)
"""


def test_log_stays_as_it_was_set_up_when_celery_starts(valkey: Valkey) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOGGING, valkey.url],
        capture_output=True,
        text=True,
        check=True,
        timeout=WAIT_SECONDS,
        cwd=Path(__file__).parents[2],
    )
    records = [json.loads(line) for line in done.stderr.splitlines()]
    [record] = [record for record in records if record["logger"] == "batchjobs.room"]
    assert (record["level"], record["worker"]) == ("INFO", "w")
    assert record["message"].startswith("Works with ")


def test_job_that_passes_intake_rings_for_its_models(deployment: Deployment) -> None:
    rung: list[set[str]] = []

    class Listening:
        def ring(self, models: Collection[str]) -> None:
            rung.append(set(models))

    listening = replace(deployment, bell=Listening())
    good = create_job(listening, add_input(listening, [request_line("a")]).id)
    validate(listening, good)
    validate(listening, create_job(listening, "file-none"))
    assert rung == [{MODEL}]


def test_ringing_without_a_broker_is_logged_without_its_password(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        CeleryBell(NOBODY).ring([MODEL, "other"])
    assert "the broker cannot be reached" in caplog.text
    assert "secret-of-nobody" not in caplog.text


def test_queue_names_are_safe_and_apart() -> None:
    names = {queue_name(model) for model in ("a", "b", "a/b c:d*", "ž" * 300)}
    assert len(names) == 4
    assert all(name.replace(".", "").isalnum() and len(name) < 40 for name in names)
