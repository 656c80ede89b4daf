"""Run as a program: validates a made-up file and prints what that took, as JSON.

A process of its own, so that nothing else's memory is in the numbers.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from batchjobs import catalogue, files
from batchjobs.deployment import Deployment
from batchjobs.intake import validate
from batchjobs.queue import jobs
from batchjobs.settings import Settings

URL = "/v1/completions"


def peak_bytes() -> int:
    """The most memory this process ever had; `ru_maxrss` would count its parent's too."""
    status = Path("/proc/self/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def request_lines(count: int, prompt_bytes: int, model: str) -> Iterator[bytes]:
    body = {"model": model, "prompt": "word " * (prompt_bytes // 5)}
    for number in range(count):
        line = {"custom_id": f"request-{number}", "method": "POST", "url": URL, "body": body}
        yield orjson.dumps(line) + b"\n"


def write_input(path: Path, lines: Iterator[bytes]) -> int:
    with path.open("wb") as target:
        for line in lines:
            target.write(line)
    return path.stat().st_size


def measure(home: Path, count: int, prompt_bytes: int, model: str) -> dict[str, Any]:
    settings = Settings(home=home, max_requests_per_batch=count, max_input_bytes=1 << 40)
    path = home.with_suffix(".jsonl")
    size = write_input(path, request_lines(count, prompt_bytes, model))
    with Deployment.open(settings) as deployment:
        with path.open("rb") as stream:
            file = files.add_file(deployment, stream, filename=path.name, purpose="batch")
        with deployment.database.write() as session:
            catalogue.add(session, deployment.clock, name="small", source="/w", revision="r")
            job = jobs.create(
                session,
                deployment.clock,
                input_file_id=file.id,
                endpoint=URL,
                completion_window="24h",
                max_window_hours=24,
            )
        before, started = peak_bytes(), time.perf_counter()
        validate(deployment, job.id)
        seconds, after = time.perf_counter() - started, peak_bytes()
        with deployment.database.read() as session:
            job = jobs.get(session, job.id)
            errors = len(jobs.errors(session, job.id))
    return {
        "status": job.status,
        "lines": job.total_lines,
        "errors": errors,
        "size": size,
        "seconds": seconds,
        "extra_bytes": after - before,
    }


if __name__ == "__main__":
    home, count, prompt_bytes, model = sys.argv[1:]
    result = measure(Path(home), int(count), int(prompt_bytes), model)
    sys.stdout.write(json.dumps(result))
