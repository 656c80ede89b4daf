"""Servers that fail, in all the ways that servers do."""

from __future__ import annotations

import io
import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from batchjobs.client import connection, remote
from batchjobs.client.base import Order
from batchjobs.client.remote import RemoteClient
from batchjobs.errors import (
    BatchJobsError,
    ConflictError,
    NotFoundError,
    RemoteError,
    UsageError,
)
from tests.support.jobs import ENDPOINT
from tests.support.scripted_server import Asked, Reply, http, scripted

BATCH = {"id": "batch_1", "object": "batch", "status": "in_progress"}
FILE = {"id": "file-1", "object": "file"}
ORDER = Order(filename="in.jsonl", endpoint=ENDPOINT)
CONTENT = bytes(range(256)) * 1000


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REPEAT_SECONDS", (0.01, 0.01))
    monkeypatch.setattr(remote, "PATIENT_SECONDS", (0.01,) * 4)


def json_http(status: int, value: Any) -> bytes:
    return http(status, json.dumps(value).encode())


def error(message: str = "It is so.", **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": "x", "param": None, "code": None, **more}}


class Script:
    """Answers in the order given, the last of them ever after; `asked` is what came."""

    def __init__(self, *replies: Reply) -> None:
        self._replies = list(replies)
        self.asked: list[Asked] = []

    def __call__(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        return self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]


def refusal(reply: Reply, *, key: str | None = None) -> BatchJobsError:
    """What asking for a job of such a server raises."""
    with (
        scripted(Script(reply)) as url,
        RemoteClient(url, None if key is None else SecretStr(key)) as client,
        pytest.raises(BatchJobsError) as raised,
    ):
        client.batch("batch_1")
    assert url in raised.value.message or isinstance(raised.value, ConflictError)
    assert raised.value.message.count("\n") == 0
    return raised.value


def test_a_server_that_is_not_there_is_one_sentence() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with RemoteClient(url) as client, pytest.raises(RemoteError) as refused:
            client.batch("batch_1")
    assert refused.value.message.startswith(f"{url} cannot be reached (")
    assert "BATCHJOBS_URL" in refused.value.message


def test_a_silent_server_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REPEAT_SECONDS", ())
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = connection.Connection(f"http://127.0.0.1:{silent.getsockname()[1]}", None)
        with pytest.raises(RemoteError, match="did not answer in time"):
            server.get("/v1/models", answer_seconds=0.1)
        server.close()


@pytest.mark.parametrize(
    "reply",
    [
        http(200, b"<html>Welcome</html>"),
        http(200, b'["a"]'),
        json_http(200, {"object": "something"}),
        json_http(404, {"detail": "Not Found"}),
        http(301, location="https://elsewhere"),
    ],
)
def test_a_server_of_another_kind_is_told(reply: bytes) -> None:
    assert "does not answer as a batchjobs server does" in refusal(reply).message


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_is_missing_or_wrong_is_told(status: int) -> None:
    reply = json_http(status, error("Incorrect API key provided."))
    missing, wrong = refusal(reply), refusal(reply, key="bj-secret")
    assert isinstance(missing, UsageError)
    assert "asks for an API key: set BATCHJOBS_API_KEY" in missing.message
    assert "does not take the key in BATCHJOBS_API_KEY" in wrong.message
    assert "bj-secret" not in wrong.message


def test_the_key_is_sent() -> None:
    script = Script(json_http(200, BATCH))
    with scripted(script) as url, RemoteClient(url, SecretStr("bj-secret")) as client:
        client.batch("batch_1")
    assert script.asked[0].headers["authorization"] == "Bearer bj-secret"


def test_a_server_may_be_behind_a_path() -> None:
    script = Script(json_http(200, BATCH))
    with scripted(script) as url, RemoteClient(f"{url}/batches") as client:
        client.batch("batch_1")
    assert script.asked[0].path == "/batches/v1/batches/batch_1"


def test_a_fault_of_the_server_is_told_with_its_request_id() -> None:
    failed = refusal(json_http(500, error("The server had an error (request id req_1).")))
    assert "failed with status 500" in failed.message
    assert "req_1" in failed.message
    assert "status 502" in refusal(http(502, b"<html>Bad Gateway</html>")).message


def test_words_of_a_server_cannot_steer_the_terminal() -> None:
    assert refusal(json_http(404, error("No\x1b[31m such\nbatch."))).message.startswith(
        "No [31m such batch (at http"
    )


def test_what_is_wrong_with_a_request_is_said_as_here() -> None:
    assert isinstance(refusal(json_http(404, error())), NotFoundError)
    conflict = refusal(json_http(409, error("Cannot cancel.")))
    assert (type(conflict), conflict.message) == (ConflictError, "Cannot cancel.")


@pytest.mark.parametrize("passing", [None, http(200, b"{", length=9), http(503), http(429)])
def test_a_question_is_asked_again(passing: Reply) -> None:
    with scripted(Script(passing, passing, json_http(200, BATCH))) as url:
        assert RemoteClient(url).batch("batch_1").id == "batch_1"


def test_one_who_waits_is_patient() -> None:
    with scripted(Script(None, http(502), None, http(503), json_http(200, BATCH))) as url:
        batch = remote.Batch({**BATCH, "status": "validating"})
        assert RemoteClient(url).wait(batch, seconds=1).status == "in_progress"


def test_a_server_that_does_not_wait_is_not_asked_without_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote, "SAME_AGAIN_SECONDS", 0.2)
    with scripted(Script(http(304))) as url:
        batch = remote.Batch(BATCH, '"tag"')
        began = time.monotonic()
        assert RemoteClient(url).wait(batch, seconds=9) is batch
    assert 0.2 <= time.monotonic() - began < 5


def test_a_create_whose_answer_is_lost_is_sent_again_under_its_key() -> None:
    script = Script(json_http(200, FILE), None, http(502), json_http(200, BATCH))
    with scripted(script) as url:
        assert RemoteClient(url).submit(io.BytesIO(b"{}\n"), ORDER).id == "batch_1"
    creates = script.asked[1:]
    assert len({asked.headers["idempotency-key"] for asked in creates}) == 1
    assert {asked.body for asked in creates} == {creates[0].body}
    assert set(json.loads(creates[0].body)) == {"input_file_id", "endpoint", "completion_window"}


def test_an_upload_that_broke_is_not_sent_again() -> None:
    script = Script(None)
    with scripted(script) as url, pytest.raises(RemoteError, match="broke"):
        RemoteClient(url).submit(io.BytesIO(b"{}\n"), ORDER)
    assert len(script.asked) == 1
    purpose, file = (script.asked[0].body.index(name) for name in (b'"purpose"', b'"file"'))
    assert purpose < file


def test_the_file_of_a_refused_job_is_taken_back() -> None:
    script = Script(json_http(200, FILE), json_http(400, error("Invalid.")), json_http(200, {}))
    with scripted(script) as url, pytest.raises(BatchJobsError, match="Invalid"):
        RemoteClient(url).submit(io.BytesIO(b"{}\n"), ORDER)
    assert [(asked.method, asked.path) for asked in script.asked][2:] == [
        ("DELETE", "/v1/files/file-1")
    ]


def ranged(asked: Asked) -> bytes:
    """At most 100,000 bytes at a time of what was asked for, then a broken connection."""
    start = int(asked.headers.get("range", "bytes=0-")[len("bytes=") : -1])
    rest = CONTENT[start:]
    return http(206 if start else 200, rest[:100_000], length=len(rest))


def test_a_download_that_breaks_goes_on_where_it_was() -> None:
    with scripted(ranged) as url, RemoteClient(url).open("file-1") as content:
        assert content.read() == CONTENT


def test_a_download_that_cannot_go_on_is_an_error() -> None:
    half = http(200, CONTENT[:1000], length=len(CONTENT))
    with (
        scripted(Script(half)) as url,
        RemoteClient(url).open("file-1") as content,
        pytest.raises(RemoteError, match="does not send the rest"),
    ):
        content.read()


def test_a_download_whose_server_dies_is_an_error() -> None:
    half = http(200, CONTENT[:1000], length=len(CONTENT))
    with (
        scripted(Script(half, None)) as url,
        RemoteClient(url).open("file-1") as content,
        pytest.raises(RemoteError, match="broke"),
    ):
        content.read()


def test_a_large_file_goes_out_and_in_in_little_memory(tmp_path: Path) -> None:
    program = """
import resource, sys
from batchjobs.client.base import Order
from batchjobs.client.remote import RemoteClient

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

url, path = sys.argv[1:]
with RemoteClient(url) as client:
    client.models()
    before = peak()
    with open(path, "rb") as stream:
        client.submit(stream, Order(filename="in.jsonl", endpoint="/v1/completions"))
    with client.open("file-1") as content:
        size = sum(map(len, iter(lambda: content.read(1 << 20), b"")))
print(size, peak() - before)
"""
    size = 100_000_000
    file = tmp_path / "in.jsonl"
    with file.open("wb") as sparse:
        sparse.truncate(size)
    received: list[int] = []

    def answer(asked: Asked) -> bytes:
        if asked.path == "/v1/files":
            received.append(len(asked.body))
        if asked.path.endswith("/content"):
            return http(200, bytes(size))
        kind = {"/v1/models": "list", "/v1/files": "file"}.get(asked.path, "batch")
        return json_http(200, {"object": kind, "id": "x", "data": []})

    with scripted(answer) as url:
        done = subprocess.run(
            [sys.executable, "-c", program, url, str(file)],
            capture_output=True,
            text=True,
            check=True,
        )
    sent, grown = map(int, done.stdout.split())
    assert sent == size
    assert received[0] > size
    assert grown < 30_000_000
