"""What an operator sees of a server and a worker, each a process of its own with a real engine."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from batchjobs.cli.exits import Exit
from tests.support.api import jsonl, running_server
from tests.support.cli import run
from tests.support.processes import python
from tests.support.tiny_models import save_tiny, tiny_config

MODEL = "tiny"
LEASE_SECONDS = 3
WAIT_SECONDS = 90
LINES = 6
TOKENS = 4


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weights")
    save_tiny(folder, tiny_config("llama"))
    return folder


@pytest.fixture
def home(tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BATCHJOBS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("BATCHJOBS_POLL_SECONDS", "0.1")
    monkeypatch.setenv("BATCHJOBS_LEASE_SECONDS", str(LEASE_SECONDS))
    assert run("models", "add", MODEL, str(weights)).exit_code == Exit.DONE
    return tmp_path / "home"


class RunningWorker:
    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def url(self) -> str:
        """Where its metrics are."""
        found = re.search(r"Metrics: (http://127\.0\.0\.1:\d+/metrics)", self._log.read_text())
        assert found is not None
        return found[1]

    def records(self) -> list[dict[str, Any]]:
        """The log, which begins behind the line on metrics."""
        rows = self._log.read_text().splitlines()
        return [json.loads(row) for row in rows if not row.startswith("Metrics: ")]


@contextmanager
def running_worker(log: Path) -> Iterator[RunningWorker]:
    command = ("-m", "batchjobs", "worker", "--metrics-port", "0")
    environment = os.environ | {"BATCHJOBS_LOG_FORMAT": "json"}
    with (
        log.open("w") as errors,
        python(*command, environment=environment, stderr=errors) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "Waiting for jobs. Ctrl-C ends it.\n"
        yield RunningWorker(process, log)


def new_batch(client: httpx2.Client) -> str:
    body = {"model": MODEL, "prompt": "abc", "max_tokens": TOKENS, "ignore_eos": True}
    requests = [
        {"custom_id": str(number), "method": "POST", "url": "/v1/completions", "body": body}
        for number in range(LINES)
    ]
    file = client.post(
        "/v1/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", jsonl(*requests))}
    ).json()
    asked = {
        "input_file_id": file["id"],
        "endpoint": "/v1/completions",
        "completion_window": "24h",
    }
    batch_id: str = client.post("/v1/batches", json=asked).json()["id"]
    return batch_id


def wait_until(client: httpx2.Client, batch_id: str, holds: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds(batch := client.get(f"/v1/batches/{batch_id}").json()):
        assert time.monotonic() < deadline, batch
        time.sleep(0.05)
    return batch


def samples(url: str) -> dict[str, float]:
    text = httpx2.get(url).text
    rows = [row.rpartition(" ") for row in text.splitlines() if not row.startswith("#")]
    return {name: float(value) for name, _, value in rows}


def test_notice_figures_and_logs_follow_a_batch_through_a_worker(
    home: Path, tmp_path: Path
) -> None:
    with (
        running_server(home, poll_seconds=0.1) as server,
        httpx2.Client(base_url=server.url) as client,
    ):
        batch_id = new_batch(client)
        batch = wait_until(client, batch_id, lambda batch: batch["notice"])
        assert batch["notice"].endswith(f"batchjobs worker --model {MODEL}")
        assert samples(f"{server.url}/metrics")["batchjobs_jobs_unserved"] == 1
        with running_worker(tmp_path / "log") as worker:
            wait_until(client, batch_id, lambda batch: batch["notice"] is None)
            wait_until(client, batch_id, lambda batch: batch["status"] == "completed")
            figures = samples(worker.url)
            loaded = f'batchjobs_live_workers{{model="{MODEL}"}}'
            deadline = time.monotonic() + WAIT_SECONDS
            while samples(f"{server.url}/metrics").get(loaded) != 1:
                assert time.monotonic() < deadline
            worker.process.send_signal(signal.SIGTERM)
            assert worker.process.wait(WAIT_SECONDS) == 0
        assert loaded not in samples(f"{server.url}/metrics")
        check_figures(figures)
        check_log(worker.records(), batch_id)


def check_figures(figures: dict[str, float]) -> None:
    engine = f'{{model_name="{MODEL}"}}'
    assert figures[f"batchjobs_generation_tokens_total{engine}"] == LINES * TOKENS
    assert figures[f"batchjobs_prompt_tokens_total{engine}"] > 0
    assert figures[f"batchjobs_steps_total{engine}"] >= TOKENS
    for idle in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        assert figures[f"batchjobs_{idle}{engine}"] == 0
    assert figures[f"batchjobs_num_preemptions_total{engine}"] == 0
    answered = f'batchjobs_lines_answered_total{{model="{MODEL}",outcome="completed"}}'
    assert figures[answered] == LINES
    assert figures["batchjobs_checkpoints_total"] >= 1
    assert figures["batchjobs_lease_losses_total"] == 0


def check_log(records: list[dict[str, Any]], batch_id: str) -> None:
    [owner] = {record["worker"] for record in records if "worker" in record}
    told = {
        record["message"].partition(" in ")[0].partition(":")[0].partition(",")[0]: record
        for record in records
    }
    for what in ("Shard claimed", "Shard finished"):
        found = {name: told[what][name] for name in ("job_id", "shard", "model", "worker")}
        assert found == {"job_id": batch_id, "shard": 0, "model": MODEL, "worker": owner}
    assert told["Model loaded"]["model"] == MODEL
    assert told["Job completed"]["job_id"] == batch_id


def test_killed_worker_is_no_live_one_when_its_lease_has_ended(home: Path, tmp_path: Path) -> None:
    with (
        running_server(home, poll_seconds=0.1) as server,
        httpx2.Client(base_url=server.url) as client,
    ):
        with running_worker(tmp_path / "log") as worker:
            idle = 'batchjobs_live_workers{model=""}'
            assert samples(f"{server.url}/metrics")[idle] == 1
            worker.process.kill()
            worker.process.wait()
        batch_id = new_batch(client)
        wait_until(client, batch_id, lambda batch: batch["notice"])
        assert idle not in samples(f"{server.url}/metrics")


def test_port_for_metrics_that_is_taken_is_told(home: Path, tmp_path: Path) -> None:
    with running_server(home) as server:
        port = server.url.rpartition(":")[2]
        refused = run("worker", "--once", "--metrics-port", port)
    assert refused.exit_code == Exit.USAGE
    assert f"Metrics cannot be served on 127.0.0.1:{port}" in refused.stderr
