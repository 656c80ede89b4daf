"""The processes of docker-compose.yml, started by hand: database, broker, store, migration, API,
workers and beat; ended in every way there is."""

from __future__ import annotations

import io
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from sqlalchemy import func, select

from batchjobs.deployment import Deployment
from batchjobs.models import Part, Shard
from batchjobs.settings import Settings
from batchjobs.states import ShardState
from batchjobs.store.layout import JOBS_PREFIX
from batchjobs.worker.runner import run_jobs
from batchjobs.worker.stop import StopSignal
from tests.support.api import beat, jsonl, running_server, service_worker
from tests.support.engines import FakeEngines, add_models
from tests.support.jobs import (
    ENDPOINT,
    MODEL,
    load_job,
    open_deployment,
    read_records,
    request_line,
    start_job,
)
from tests.support.processes import environment_of
from tests.support.servers.stack import Stack, service_stack

LINES = 300
JOBS = 3
WAIT_SECONDS = 120
STOP_SECONDS = 25
EAGER = {
    "lease_seconds": "2",
    "poll_seconds": "0.2",
    "checkpoint_seconds": "0.1",
    "shard_max_lines": "16",
}


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    folder = tmp_path / "servers"
    folder.mkdir()
    with service_stack(folder) as started:
        yield started


def chat(number: int) -> dict[str, Any]:
    line = request_line(f"line-{number}")
    line["body"] |= {"max_tokens": 4 + number * 7 % 40, "ignore_eos": True, "temperature": 1}
    if number % 50 == 7:
        line["body"]["max_tokens"] = 10_000  # more than the model's context: fails as a line
    return line


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def alone_on_one_machine(home: Path, data: bytes) -> list[Any]:
    """What an undisturbed run answers, by line."""
    with open_deployment(home) as deployment:
        add_models(deployment, MODEL)
        lines = [json.loads(line) for line in data.splitlines()]
        job_id = start_job(deployment, lines, shard_max_lines=512)
        stop = StopSignal(grace_seconds=60, forced_exit=9)
        run_jobs(deployment, engines=FakeEngines(), stop=stop)
        job = load_job(deployment, job_id)
        return [_told(record) for record in read_records(deployment, job.output_file_id)]


def _told(record: dict[str, Any]) -> Any:
    choice = record["response"]["body"]["choices"][0]
    return record["custom_id"], choice["finish_reason"], len(choice["message"]["content"])


@pytest.mark.parametrize("kills", [4, pytest.param(8, marks=pytest.mark.slow)])
def test_killed_workers_and_broker_lose_and_double_nothing(
    tmp_path: Path, stack: Stack, kills: int
) -> None:
    settings = {**stack.settings, **EAGER}
    home = tmp_path / "home"
    data = jsonl(*(chat(number) for number in range(LINES)))
    assert "is now at revision" in command(home, settings, "db", "upgrade")
    key = command(home, settings, "keys", "create", "laptop").strip()
    with Deployment.open(Settings.load(home=home, **settings)) as deployment, ExitStack() as alive:
        add_models(deployment, MODEL)
        # It warns, rightly, if it rings just while the broker is away.
        quiet = {**settings, "log_level": "error"}
        server = alive.enter_context(running_server(home, ["--require-keys"], **quiet))
        alive.enter_context(beat(home, **settings))
        client = OpenAI(base_url=f"{server.url}/v1", api_key=key)
        (home / "slowly").touch()
        workers = [alive.enter_context(service_worker(home, "fake", **settings)) for _ in range(2)]
        batches = [_create(client, data) for _ in range(JOBS)]
        chance = random.Random(20261130)
        for number in range(kills):
            wait_until(lambda: _held(deployment) > 0, "nobody claims")
            time.sleep(chance.uniform(0, 1))
            workers[number % 2].send_signal(signal.SIGKILL)
            workers[number % 2].wait()
            if number == kills // 2:
                stack.valkey.kill()
                stack.valkey.start()
            workers[number % 2] = alive.enter_context(service_worker(home, "fake", **settings))
        (home / "slowly").unlink()
        expected = alone_on_one_machine(tmp_path / "alone", data)
        for batch_id in batches:
            wait_until(
                lambda batch_id=batch_id: client.batches.retrieve(batch_id).status == "completed",  # type: ignore[misc]
                f"{batch_id} does not end",
            )
            _check(client, batch_id, expected)
        wait_until(lambda: not list(deployment.store.list(JOBS_PREFIX)), "parts are left")


def command(home: Path, settings: Mapping[str, Any], *arguments: str) -> str:
    """What a command of ours prints."""
    return subprocess.run(
        [sys.executable, "-m", "batchjobs", *arguments],
        env=environment_of(home, settings),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


def _create(client: OpenAI, data: bytes) -> str:
    file = client.files.create(file=("in.jsonl", io.BytesIO(data)), purpose="batch")
    batch = client.batches.create(
        input_file_id=file.id,
        endpoint=ENDPOINT,  # type: ignore[arg-type]
        completion_window="24h",
    )
    return str(batch.id)


def _held(deployment: Deployment) -> int:
    with deployment.database.read() as session:
        query = select(func.count()).where(Shard.state == ShardState.RUNNING)
        return session.scalar(query) or 0


def _check(client: OpenAI, batch_id: str, expected: list[Any]) -> None:
    batch = client.batches.retrieve(batch_id)
    failing = [f"line-{number}" for number in range(LINES) if number % 50 == 7]
    counts = batch.request_counts
    assert counts is not None
    assert (counts.total, counts.completed, counts.failed) == (
        LINES,
        LINES - len(failing),
        len(failing),
    )
    assert batch.output_file_id is not None
    assert batch.error_file_id is not None
    answered = [_told(record) for record in _records(client, batch.output_file_id)]
    assert answered == expected
    assert [record["custom_id"] for record in _records(client, batch.error_file_id)] == failing


def _records(client: OpenAI, file_id: str) -> list[dict[str, Any]]:
    content = client.files.content(file_id).read()
    return [json.loads(line) for line in content.splitlines()]


def test_worker_told_to_end_gives_its_shards_back_in_time(tmp_path: Path, stack: Stack) -> None:
    settings = {**stack.settings, **EAGER, "lease_seconds": "3600"}
    home = tmp_path / "home"
    with Deployment.open(Settings.load(home=home, **settings)) as deployment:
        add_models(deployment, MODEL)
        job_id = start_job(deployment, [chat(number) for number in range(64)], shard_max_lines=32)
        (home / "slowly").touch()
        with service_worker(home, "fake", **settings) as process:
            wait_until(lambda: _parts(deployment, job_id) > 0, "nothing is answered")
            process.send_signal(signal.SIGTERM)
            assert _exit_code(process) == 0
        with deployment.database.read() as session:
            shards = session.scalars(select(Shard).order_by(Shard.number)).all()
        kept = _parts(deployment, job_id)
        assert kept > 0
        assert [(shard.state, shard.attempt) for shard in shards] == [(ShardState.QUEUED, 0)] * 2
        (home / "slowly").unlink()
        with service_worker(home, "fake", **settings):
            wait_until(
                lambda: load_job(deployment, job_id).completed_lines == 62, "the job does not end"
            )


def _exit_code(process: subprocess.Popen[str]) -> int:
    started = time.monotonic()
    code = process.wait(STOP_SECONDS)
    assert time.monotonic() - started < STOP_SECONDS
    return code


def _parts(deployment: Deployment, job_id: str) -> int:
    with deployment.database.read() as session:
        return session.scalar(select(func.count()).where(Part.job_id == job_id)) or 0
