"""The server in a process of its own: memory, signals, crashes."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.api import Server, jsonl, lines, running_server
from tests.support.jobs import ENDPOINT, request_line

MEBIBYTE = 1 << 20
UPLOADED_BYTES = 200_000_000
BOUNDARY = "edge"


def memory(server: Server, name: str) -> int:
    """`VmRSS` is what the server has now, `VmHWM` the most that it ever had, in bytes."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(rf"{name}:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def head_of_part(name: str) -> bytes:
    return f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'.encode()


HEAD = head_of_part("purpose") + b"batch\r\n" + head_of_part("file")
TAIL = f"\r\n--{BOUNDARY}--\r\n".encode()


def multipart(size: int) -> Iterator[bytes]:
    """The body of an upload of a file of `size` bytes, made as it is sent."""
    line = jsonl({"custom_id": "x" * (64 << 10)})
    yield HEAD
    for _ in range(size // len(line)):
        yield line
    yield line[: size % len(line)]
    yield TAIL


def upload(client: httpx2.Client, body: Any) -> httpx2.Response:
    headers = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
    return client.post("/v1/files", content=body, headers=headers, timeout=60)


def create(client: httpx2.Client, data: bytes) -> str:
    file = upload(client, HEAD + data + TAIL).json()
    asked = {"input_file_id": file["id"], "endpoint": ENDPOINT, "completion_window": "24h"}
    batch_id: str = client.post("/v1/batches", json=asked).json()["id"]
    return batch_id


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_large_file_goes_in_and_out_in_little_memory(tmp_path: Path) -> None:
    with (
        running_server(tmp_path, max_input_bytes=UPLOADED_BYTES) as server,
        httpx2.Client(base_url=server.url) as client,
    ):
        client.get("/readyz")
        before = memory(server, "VmRSS")
        reply = upload(client, multipart(UPLOADED_BYTES))
        assert (reply.status_code, reply.json()["bytes"]) == (200, UPLOADED_BYTES)
        with client.stream("GET", f"/v1/files/{reply.json()['id']}/content") as content:
            assert sum(map(len, content.iter_raw())) == UPLOADED_BYTES
        assert upload(client, multipart(UPLOADED_BYTES + 1)).status_code == 413
        assert memory(server, "VmHWM") - before < 50 * MEBIBYTE


def test_answers_are_not_held_back(tmp_path: Path) -> None:
    """As each is for 40 ms where the kernel waits for more to send; a busy machine holds back some
    of them only."""

    def seconds() -> float:
        began = time.monotonic()
        client.get("/v1/models")
        return time.monotonic() - began

    with running_server(tmp_path) as server, httpx2.Client(base_url=server.url) as client:
        assert min(seconds() for _ in range(100)) < 0.03


def test_server_stops_although_a_client_waits(tmp_path: Path) -> None:
    with (
        socket.socket() as waiting,
        running_server(tmp_path, poll_seconds=0.1, stop_grace_seconds=15) as server,
        httpx2.Client(base_url=server.url) as client,
    ):
        batch_id = create(client, jsonl(request_line("a", model="none")))
        while client.get(f"/v1/batches/{batch_id}").json()["status"] != "failed":
            pass
        url = httpx2.URL(server.url)
        waiting.connect((url.host, url.port))
        tag = client.get(f"/v1/batches/{batch_id}").headers["etag"]
        request = (
            f"GET /v1/batches/{batch_id}?wait=60 HTTP/1.1\r\n"
            f"host: {url.host}\r\nif-none-match: {tag}"
        )
        waiting.sendall(f"{request}\r\n\r\n".encode())
        # What is answered after it was sent was also read after it.
        assert client.get("/healthz").status_code == 200
        server.process.terminate()
        waiting.settimeout(30)
        assert waiting.recv(4096).startswith(b"HTTP/1.1 304 ")


def test_what_a_killed_server_took_in_the_next_one_validates(tmp_path: Path) -> None:
    with (
        running_server(tmp_path) as server,
        httpx2.Client(base_url=server.url) as client,
    ):
        batch_id = create(client, lines(2000, model="none"))
        server.kill()
    with (
        running_server(tmp_path, poll_seconds=0.1) as server,
        httpx2.Client(base_url=server.url) as client,
    ):
        batch = client.get(f"/v1/batches/{batch_id}?wait=60", timeout=90).json()
    assert batch["status"] == "failed"
    assert len(batch["errors"]["data"]) == 2000


def test_open_address_is_served_when_asked_for(tmp_path: Path) -> None:
    with running_server(tmp_path, ["--host", "0.0.0.0", "--insecure-open"]) as server:
        port = server.url.rpartition(":")[2]
        assert httpx2.get(f"http://127.0.0.1:{port}/healthz").json() == {"status": "ok"}


def test_address_that_others_reach_needs_a_key_and_says_how_to_create_one(tmp_path: Path) -> None:
    with running_server(tmp_path, ["--host", "0.0.0.0"]) as server:
        port = server.url.rpartition(":")[2]
        assert httpx2.get(f"http://127.0.0.1:{port}/v1/files").status_code == 401
        assert httpx2.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
        server.process.terminate()
        said, complaints = server.process.communicate(timeout=20)
    assert (server.process.returncode, said) == (0, "")
    assert complaints.count("\n") == 1
    assert "batchjobs keys create NAME" in complaints


def test_server_without_keys_is_asked_by_its_own_names_only(tmp_path: Path) -> None:
    with (
        running_server(tmp_path, allowed_hosts="gpu.example.org") as server,
        httpx2.Client(base_url=server.url) as client,
    ):
        for host, status in (
            (server.url.removeprefix("http://"), 200),
            (socket.gethostname(), 200),
            ("gpu.example.org:8000", 200),
            ("evil.example", 403),
        ):
            assert client.get("/v1/files", headers={"host": host}).status_code == status, host
