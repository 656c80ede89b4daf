"""Requests to the API, and servers to send them to."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from batchjobs import api_keys
from batchjobs.deployment import Deployment
from batchjobs.models import DEFAULT_TENANT
from tests.support.jobs import ENDPOINT, request_line
from tests.support.processes import environment_of, python

STOP_SECONDS = 60


def jsonl(*requests: Mapping[str, Any]) -> bytes:
    return b"".join(json.dumps(request).encode() + b"\n" for request in requests)


def lines(count: int, **options: Any) -> bytes:
    """An input file of `count` good lines."""
    return jsonl(*(request_line(f"line-{number + 1}", **options) for number in range(count)))


def upload(client: TestClient, data: bytes | None = None, **fields: Any) -> dict[str, Any]:
    """The file object of a file that is taken."""
    answer = client.post(
        "/v1/files",
        data={"purpose": "batch", **fields},
        files={"file": ("in.jsonl", lines(1) if data is None else data)},
    )
    assert answer.status_code == 200, answer.text
    file: dict[str, Any] = answer.json()
    return file


def create(client: TestClient, input_file_id: str, **fields: Any) -> dict[str, Any]:
    """The batch object of a batch that is taken."""
    asked = {"endpoint": ENDPOINT, "completion_window": "24h", "input_file_id": input_file_id}
    answer = client.post("/v1/batches", json={**asked, **fields})
    assert answer.status_code == 200, answer.text
    batch: dict[str, Any] = answer.json()
    return batch


def new_secret(deployment: Deployment, tenant: str = DEFAULT_TENANT) -> str:
    """Of a key that opens what is the tenant's."""
    with deployment.database.write() as session:
        return api_keys.create(session, deployment.clock, name="test", tenant=tenant).secret


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


@contextmanager
def running_server(home: Path, arguments: Sequence[str] = (), **settings: Any) -> Iterator[Server]:
    """`batchjobs serve` in a process of its own, stopped well at the end unless it was killed."""
    settings = {"log_level": "warning", **settings}
    command = ("-m", "batchjobs", "serve", "--port", "0", *arguments)
    with python(*command, environment=environment_of(home, settings)) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url, process.communicate()[1]
        yield Server(url, process)
        if process.poll() is None:
            process.terminate()
            _, complaints = process.communicate(timeout=STOP_SECONDS)
            assert (process.returncode, complaints) == (0, "")


class Server:
    def __init__(self, url: str, process: subprocess.Popen[str]) -> None:
        self.url = url
        self.process = process

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self.process.wait()


@contextmanager
def service_worker(home: Path, engine: str, **settings: Any) -> Iterator[subprocess.Popen[str]]:
    """A worker of `tests.support.service_worker`; it is dead when the context ends."""
    command = ("-m", "tests.support.service_worker", engine)
    with python(*command, environment=environment_of(home, settings), stderr=None) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process


@contextmanager
def beat(home: Path, **settings: Any) -> Iterator[subprocess.Popen[str]]:
    """`batchjobs beat`; it is dead when the context ends."""
    environment = environment_of(home, settings)
    with python("-m", "batchjobs", "beat", environment=environment, stderr=None) as process:
        yield process
