"""A deployment as one is in the middle of a night: jobs in every state, and workers at work."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import insert
from sqlalchemy.orm import Session

from batchjobs.deployment import Deployment
from batchjobs.errors import BatchJobsError, InvalidRequestError
from batchjobs.files import add_row, create_file
from batchjobs.finalize import finalize
from batchjobs.ids import line_digest, new_job_id
from batchjobs.intake import validate
from batchjobs.jsonl import dump_line
from batchjobs.models import DEFAULT_TENANT, Job
from batchjobs.queue import claims, jobs, workers
from batchjobs.queue.claims import Claim, PartFacts
from batchjobs.queue.workers import Condition, Identity
from batchjobs.shard_lines import ShardLine, read_shard
from batchjobs.states import JobState
from batchjobs.store.layout import part_key
from batchjobs.wire import failure_line, success_line
from tests.support.engines import add_models
from tests.support.jobs import (
    ENDPOINT,
    clock_of,
    create_job,
    must_claim,
    request_line,
    start_job,
)

OWNER = "worker-0"
"""Who answers the lines of running jobs."""
MODELS = ("smollm2-1.7b-instruct", "qwen3-8b")
UNSERVED = "llama-3.3-70b-instruct"
LONG_NAME = f"customer-feedback-2026-01-classified-{'by-topic-and-sentiment-' * 3}v14-final.jsonl"
ANSWERS = (
    "The invoice total is 1,284.50 EUR, due on 14 February.",
    "B",
    "Osmosis is the movement of water through a semipermeable membrane, from where there is less"
    " dissolved in it to where there is more. It goes on until both sides are alike, or until the"
    " pressure of the risen water holds it back.\n\nIn plants this keeps the leaves taut: when it"
    " fails, they wilt.",
    '{"topic": "delivery", "sentiment": "negative", "stars": 2}',
    'Ein Satz auf Deutsch, 一句中文, جملة بالعربية, and <b>markup</b> & "quotes" as they came.',
)
TOO_LONG = InvalidRequestError(
    "This model's maximum context length is 8192 tokens, but the request has 9311 tokens in its"
    " messages and asks for 512 more.",
    param="messages",
    code="context_length_exceeded",
)
NO_MODEL = InvalidRequestError(
    "The parameter 'logit_bias' names token 151999, which the model does not have.",
    param="logit_bias",
    code="invalid_value",
)


def populate(deployment: Deployment) -> dict[str, str]:
    """What each kind of job has for an id."""
    add_models(deployment, *MODELS, UNSERVED)
    past = clock_of(deployment)
    made = {}
    made["completed"] = _ended(deployment, "mmlu-pro-nightly.jsonl", 60, failed=0)
    past.advance(timedelta(minutes=37))
    made["failures"] = _ended(deployment, LONG_NAME, 80, failed=17, metadata={"team": "support"})
    made["invalid"] = _invalid(deployment)
    past.advance(timedelta(minutes=21))
    made["expired"] = _unfinished(deployment, "gsm8k-train.jsonl", JobState.EXPIRED)
    past.advance(timedelta(minutes=3))
    made["cancelled"] = _unfinished(deployment, "wrong-prompt.jsonl", JobState.CANCELLED)
    made["waiting"] = _running(deployment, "weekly-report.jsonl", 500, (), model=UNSERVED)
    made["at_risk"] = _running(
        deployment, "product-descriptions.jsonl", 900, (1,), model=MODELS[1], hours=2
    )
    work_for_an_hour(deployment)
    made["running"] = _running(deployment, "arc-easy-nightly.jsonl", 240, (1, 2, 3), failed=4)
    past.advance(timedelta(seconds=70))
    made["validating"] = create_job(deployment, "file-on-its-way", metadata={"run": "2026-01-02"})
    keep_working(deployment)
    return made


def add_thousands(deployment: Deployment, count: int, *, tenant: str = DEFAULT_TENANT) -> None:
    """Jobs that have ended, one a minute."""
    with deployment.database.write() as session:
        now = deployment.clock.now(session)
        rows = [
            {
                "id": new_job_id(),
                "status": JobState.COMPLETED if number % 9 else JobState.CANCELLED,
                "endpoint": ENDPOINT,
                "completion_window": "24h",
                "input_file_id": f"file-{number:032x}",
                "job_metadata": {"night": str(number), "suite": f"suite-{number % 40}"},
                "models": {MODELS[number % 2]: MODELS[number % 2]},
                "seed": 0,
                "tenant": tenant,
                "priority": 0,
                "due_hour": 0,
                "created_at": now - timedelta(minutes=number + 600),
                "expires_at": now - timedelta(minutes=number) + timedelta(hours=14),
                "in_progress_at": now - timedelta(minutes=number + 599),
                "finalizing_at": now - timedelta(minutes=number + 580),
                "completed_at": now - timedelta(minutes=number + 579),
                "total_lines": 1000,
                "total_bytes": 500_000,
                "completed_lines": 990 + number % 11,
                "failed_lines": 10 - number % 11,
                "prompt_tokens": 400_000,
                "cached_tokens": 0,
                "completion_tokens": 120_000,
            }
            for number in range(count)
        ]
        session.execute(insert(Job), rows)


def answer_more(deployment: Deployment, job_id: str, *, failed: int = 0) -> None:
    """One shard more of a running job is answered."""
    held = must_claim(deployment, job_id=job_id, owner=OWNER)
    answer_shard(deployment, held, failed=failed)


def keep_working(deployment: Deployment) -> None:
    """The workers report, now."""
    with deployment.database.write() as session:
        for number in range(len(_CONDITIONS)):
            _report(session, deployment, number)


_CONDITIONS = (
    Condition(
        loaded_model=MODELS[0],
        tokens_per_second=1843.0,
        running=96,
        waiting=144,
        kv_cache_usage=0.728,
    ),
    Condition(
        loaded_model=MODELS[1], tokens_per_second=7.4, running=3, waiting=0, kv_cache_usage=0.041
    ),
    Condition(),
)


def work_for_an_hour(deployment: Deployment) -> None:
    """The workers were at it, now more, now less; the clock goes on by an hour."""
    with deployment.database.write() as session:
        for minute in range(60):
            for number, condition in enumerate(_CONDITIONS[:2]):
                rests = number == 0 and 20 < minute < 27
                speed = (condition.tokens_per_second or 0) * (1 + 0.12 * ((minute * 7) % 5 - 2))
                _report(session, deployment, number, tokens=0 if rests else int(60 * speed))
            clock_of(deployment).advance(timedelta(minutes=1))


def _report(session: Session, deployment: Deployment, number: int, *, tokens: int = 0) -> None:
    identity = Identity(
        id=f"worker-{number}",
        host=("gpu-node-a", "gpu-node-b.rack-12.example.internal", "gpu-node-c")[number],
        pid=4100 + number,
        models=MODELS[:1] if number == 0 else MODELS,
        job_id=None,
    )
    workers.report(session, deployment.clock, identity, _CONDITIONS[number], tokens=tokens)


def _requests(count: int, model: str) -> list[dict[str, Any]]:
    return [request_line(f"item-{number + 1:05}", model=model) for number in range(count)]


def _ended(
    deployment: Deployment, filename: str, lines: int, *, failed: int, **options: Any
) -> str:
    job_id = start_job(
        deployment,
        _requests(lines, MODELS[0]),
        shard_max_lines=lines,
        filename=filename,
        **options,
    )
    clock_of(deployment).advance(timedelta(minutes=4))
    answer_shard(deployment, must_claim(deployment, job_id=job_id), failed=failed)
    _settle(deployment, job_id)
    return job_id


def _invalid(deployment: Deployment) -> str:
    lines: Iterable[Any] = (
        request_line("a", model="gpt-5-mini"),
        {"custom_id": "b", "method": "GET", "url": ENDPOINT, "body": {}},
        request_line("a", model=MODELS[0]),
    )
    with create_file(deployment.store) as written:
        written.write(b"".join(dump_line(line) for line in lines) + b"{not json\n")
    with deployment.database.write() as session:
        file = add_row(
            session, deployment.clock, written, filename="hand-written.jsonl", purpose="batch"
        )
    job_id = create_job(deployment, file.id)
    validate(deployment, job_id)
    return job_id


def _unfinished(deployment: Deployment, filename: str, ending: JobState) -> str:
    """Ended before its time, with half of the lines done."""
    job_id = start_job(
        deployment,
        _requests(40, MODELS[0]),
        shard_max_lines=20,
        filename=filename,
        completion_window="1h",
    )
    answer_shard(deployment, must_claim(deployment, job_id=job_id))
    if ending == JobState.EXPIRED:
        clock_of(deployment).advance(timedelta(hours=1, seconds=1))
        with deployment.database.write() as session:
            jobs.expire_due(session, deployment.clock)
    else:
        clock_of(deployment).advance(timedelta(minutes=2))
        with deployment.database.write() as session:
            jobs.cancel(session, deployment.clock, job_id)
    finalize(deployment, job_id)
    return job_id


def _running(
    deployment: Deployment,
    filename: str,
    lines: int,
    shards: Sequence[int],
    *,
    model: str = MODELS[0],
    failed: int = 0,
    hours: int = 24,
) -> str:
    job_id = start_job(
        deployment,
        _requests(lines, model),
        shard_max_lines=40,
        filename=filename,
        completion_window=f"{hours}h",
    )
    for number in shards:
        held = must_claim(deployment, job_id=job_id)
        answer_shard(deployment, held, failed=failed if number == shards[0] else 0)
    return job_id


def _settle(deployment: Deployment, job_id: str) -> None:
    with deployment.database.write() as session:
        jobs.settle(session, deployment.clock, job_id)
    clock_of(deployment).advance(timedelta(seconds=2))
    finalize(deployment, job_id)


def answer_shard(
    deployment: Deployment,
    held: Claim,
    *,
    failed: int = 0,
    texts: Sequence[str] = ANSWERS,
    errors: Callable[[int], BatchJobsError] | None = None,
) -> None:
    """Results for all lines of a shard; the last `failed` of them are errors of two kinds."""
    lines = list(read_shard(deployment.store, held))
    bad = len(lines) - failed
    error = errors or _error
    data = b"".join(
        _part_line(held, line, texts, error(number) if number >= bad else None)
        for number, line in enumerate(lines)
    )
    key = part_key(held.job_id, held.number, held.fence, 0, fingerprint="fp_0d80b6981a_int8")
    deployment.store.put(key, data)
    part = PartFacts(
        number=0,
        key=key,
        sha256=hashlib.sha256(data).hexdigest(),
        completed_lines=bad,
        failed_lines=failed,
        input_bytes=120 * len(lines),
        prompt_tokens=412 * len(lines),
        cached_tokens=260 * len(lines),
        completion_tokens=96 * len(lines),
        reasoning_tokens=0,
    )
    with deployment.database.write() as session:
        claims.commit_part(session, held, part)
        claims.finish(session, held)


def _error(number: int) -> BatchJobsError:
    return NO_MODEL if number % 5 == 0 else TOO_LONG


def _part_line(
    held: Claim, line: ShardLine, texts: Sequence[str], error: BatchJobsError | None
) -> bytes:
    digest = line_digest(held.job_id, line.number)
    if error is not None:
        record, outcome = failure_line(line.custom_id, digest, error), "failed"
    else:
        text = texts[line.number % len(texts)]
        body = {
            "choices": [
                {
                    "message": {"content": text * (9 if line.number % 10 == 2 else 1)},
                    "finish_reason": "length" if line.number % 7 == 0 else "stop",
                }
            ],
            "usage": {"prompt_tokens": 412, "completion_tokens": len(text) // 4},
        }
        record, outcome = success_line(line.custom_id, digest, body), "completed"
    return dump_line(
        {"line": line.number, "outcome": outcome, "record": json.loads(dump_line(record))}
    )
