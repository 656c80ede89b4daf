"""Jobs on a real database and store, made and answered without intake, engine or time."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from batchjobs.clock import ManualClock
from batchjobs.cutter import ShardCutter
from batchjobs.deployment import Deployment
from batchjobs.errors import InvalidRequestError
from batchjobs.files import add_file, get_file, open_file
from batchjobs.ids import line_digest
from batchjobs.jsonl import dump_line, parse_object, read_lines
from batchjobs.models import DEFAULT_TENANT, File, Job
from batchjobs.queue import claims, jobs
from batchjobs.queue.claims import Claim, PartFacts
from batchjobs.settings import Settings
from batchjobs.shard_lines import read_shard
from batchjobs.store.layout import part_key
from batchjobs.wire import failure_line, success_line
from tests.support.tables import lay_tables

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ENDPOINT = "/v1/chat/completions"
MODEL = "tiny"
LEASE_SECONDS = 60.0


def open_deployment(home: Path, **settings: Any) -> Deployment:
    """A deployment whose clock stands at `START` until a test moves it."""
    loaded = Settings.load(home=home, **settings)
    lay_tables(loaded)
    return replace(Deployment.open(loaded), clock=ManualClock(START))


def clock_of(deployment: Deployment) -> ManualClock:
    assert isinstance(deployment.clock, ManualClock)
    return deployment.clock


def request_line(custom_id: str, *, model: str = MODEL) -> dict[str, Any]:
    body = {"model": model, "messages": [{"role": "user", "content": f"I am {custom_id}."}]}
    return {"custom_id": custom_id, "method": "POST", "url": ENDPOINT, "body": body}


def add_input(
    deployment: Deployment,
    requests: Iterable[Mapping[str, Any]],
    *,
    filename: str = "input.jsonl",
    tenant: str = DEFAULT_TENANT,
) -> File:
    data = "".join(json.dumps(request) + "\n" for request in requests).encode()
    stream = io.BytesIO(data)
    return add_file(deployment, stream, filename=filename, purpose="batch", tenant=tenant)


def create_job(deployment: Deployment, input_file_id: str = "file-none", **options: Any) -> str:
    """A validating job."""
    with deployment.database.write() as session:
        return _create(session, deployment, input_file_id, **options)


def start_job(
    deployment: Deployment,
    requests: Sequence[Mapping[str, Any]],
    *,
    shard_max_lines: int = 2,
    filename: str = "input.jsonl",
    **options: Any,
) -> str:
    """A job in progress whose models' names are those of the catalogue."""
    tenant = options.get("tenant", DEFAULT_TENANT)
    file = add_input(deployment, requests, filename=filename, tenant=tenant)
    cutter = ShardCutter(max_lines=shard_max_lines, max_bytes=1 << 20)
    names: dict[str, str] = {}
    with open_file(deployment.store, file) as stream:
        for line in read_lines(stream, 1 << 20):
            name = options.get("model_override") or parse_object(line.data or b"")["body"]["model"]
            names[name] = name
            cutter.add(name, line=line.number, start=line.start, end=line.end)
    # At once, so that no server's caretaker validates it first.
    with deployment.database.write() as session:
        job_id = _create(session, deployment, file.id, **options)
        assert jobs.start(
            session,
            deployment.clock,
            job_id,
            shards=cutter.finish(),
            models=names,
            total_lines=len(requests),
            total_bytes=file.bytes,
        )
    return job_id


def load_job(deployment: Deployment, job_id: str) -> Job:
    with deployment.database.read() as session:
        return jobs.get(session, job_id)


def claim(deployment: Deployment, *, owner: str = "worker-1", **wanted: Any) -> Claim | None:
    with deployment.database.write() as session:
        return claims.claim_next(
            session, deployment.clock, owner=owner, lease_seconds=LEASE_SECONDS, **wanted
        )


def must_claim(deployment: Deployment, **wanted: Any) -> Claim:
    claimed = claim(deployment, **wanted)
    assert claimed is not None
    return claimed


def write_part(
    deployment: Deployment,
    held: Claim,
    *,
    number: int = 0,
    lines: Collection[int] | None = None,
    failed: Collection[int] = (),
    fingerprint: str | None = None,
) -> PartFacts:
    """A part object with results of `lines` (by default all of the shard), not yet committed."""
    results = [
        _result(held, line.number, line.custom_id, is_failed=line.number in failed)
        for line in read_shard(deployment.store, held)
        if lines is None or line.number in lines
    ]
    data = b"".join(dump_line(result) for result in results)
    key = part_key(held.job_id, held.number, held.fence, number, fingerprint=fingerprint)
    deployment.store.put(key, data)
    failures = sum(result["outcome"] == "failed" for result in results)
    return PartFacts(
        number=number,
        key=key,
        sha256=hashlib.sha256(data).hexdigest(),
        completed_lines=len(results) - failures,
        failed_lines=failures,
        input_bytes=100 * len(results),
        prompt_tokens=10 * len(results),
        cached_tokens=len(results),
        completion_tokens=5 * len(results),
        reasoning_tokens=2 * len(results),
    )


def answer(deployment: Deployment, held: Claim, **part: Any) -> None:
    """Commit results for some or all lines of the shard."""
    facts = write_part(deployment, held, **part)
    with deployment.database.write() as session:
        claims.commit_part(session, held, facts)


def complete(deployment: Deployment, held: Claim, **part: Any) -> None:
    """Commit results for all lines of the shard and end it."""
    answer(deployment, held, **part)
    with deployment.database.write() as session:
        claims.finish(session, held)


def complete_all(deployment: Deployment, job_id: str, **part: Any) -> None:
    while (held := claim(deployment, job_id=job_id)) is not None:
        complete(deployment, held, **part)
    with deployment.database.write() as session:
        jobs.settle(session, deployment.clock, job_id)


def read_records(deployment: Deployment, file_id: str | None) -> list[dict[str, Any]]:
    """The lines of a produced file; [] if there is none."""
    if file_id is None:
        return []
    with deployment.database.read() as session:
        file = get_file(session, file_id)
    with open_file(deployment.store, file) as stream:
        return [json.loads(line) for line in stream.read().splitlines()]


def _create(session: Session, deployment: Deployment, input_file_id: str, **options: Any) -> str:
    asked = {"endpoint": ENDPOINT, "completion_window": "24h", "max_window_hours": 720}
    options = {**asked, **options}
    return jobs.create(session, deployment.clock, input_file_id=input_file_id, **options).id


def _result(held: Claim, line: int, custom_id: str, *, is_failed: bool) -> dict[str, Any]:
    digest = line_digest(held.job_id, line)
    if is_failed:
        record = failure_line(custom_id, digest, InvalidRequestError("The line is bad."))
    else:
        body = {"choices": [{"message": {"content": f"to {custom_id}"}}]}
        record = success_line(custom_id, digest, body)
    outcome = "failed" if is_failed else "completed"
    return {"line": line, "outcome": outcome, "record": record}
