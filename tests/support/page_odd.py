"""What nobody wishes for and everybody sends: long, unbroken, foreign, hostile and huge values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import update

from batchjobs.api.page.workers import MAX_CHART_MODELS
from batchjobs.deployment import Deployment
from batchjobs.errors import BatchJobsError, InvalidRequestError
from batchjobs.evals.outcomes import Missing
from batchjobs.evals.states import Purpose
from batchjobs.finalize import finalize
from batchjobs.models import Job
from batchjobs.queue import jobs, workers
from batchjobs.queue.workers import Condition, Identity
from batchjobs.schedules.states import SlotState
from batchjobs.states import JobState
from tests.support.engines import add_models
from tests.support.jobs import clock_of, must_claim, request_line, start_job
from tests.support.page_jobs import answer_shard
from tests.support.page_nights import METRIC, Night, add_nights, pin
from tests.support.page_schedules import add_schedule, add_slot

SCRIPT = "</script><script>window.hacked = true</script>"
IMAGE = '<img src="x" onerror="window.hacked = true">'
UNBROKEN = "W" * 300
ARABIC = "تقييم الأسئلة الصعبة (3).jsonl"
CHINESE = "每晚评测结果汇总" * 12
TURNED = "invoice-\u202elnosj.exe"
NAMES = (SCRIPT, UNBROKEN, ARABIC, CHINESE, TURNED, "two\nlines\tand a tab", " ", "0")
MODEL = f"org-with-a-very-long-name/{'mixture-of-experts-' * 6}<b>instruct</b>"
ANSWERS = (
    SCRIPT,
    IMAGE,
    UNBROKEN * 9,
    "جملة بالعربية (3)، ثم English words.\n\nAnd a paragraph from the left.",
    CHINESE,
    "\0\x07\u200b",
    '{"html": "</script>", "deep": {"deep": [1, 2, 3]}}',
    "",
)
MOST_LINES = 2_000_000_000
MOST_TOKENS = 9_000_000_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Odd:
    """`named` are jobs by their files' names, `runs` those of evals by what is odd in them."""

    named: dict[str, str]
    answered: str
    huge: str
    runs: dict[str, list[str]]


def populate_odd(deployment: Deployment) -> Odd:
    add_models(deployment, MODEL)
    runs = _add_runs(deployment)
    named = {name: _named(deployment, name) for name in NAMES}
    odd = Odd(named=named, answered=_answered(deployment), huge=_huge(deployment), runs=runs)
    _add_workers(deployment)
    _add_schedule(deployment, runs["worse"][-1])
    return odd


def _named(deployment: Deployment, name: str) -> str:
    clock_of(deployment).advance(timedelta(seconds=90))
    metadata = {"k" * 64: "v" * 512, SCRIPT: IMAGE, "": "", "名": ARABIC}
    requests = [request_line("a", model=MODEL)]
    return start_job(deployment, requests, filename=name, metadata=metadata)


def _answered(deployment: Deployment) -> str:
    """Its lines are answered, or fail, with what is hard to show."""
    custom_ids = [
        SCRIPT,
        "i" * 512,
        ARABIC,
        TURNED,
        *(f"plain-{number}" for number in range(20)),
    ]
    job_id = start_job(
        deployment,
        [request_line(custom_id, model=MODEL) for custom_id in custom_ids],
        shard_max_lines=len(custom_ids),
        filename=f"{UNBROKEN}.jsonl",
    )
    held = must_claim(deployment, job_id=job_id)
    answer_shard(deployment, held, failed=6, texts=ANSWERS, errors=_odd_error)
    with deployment.database.write() as session:
        jobs.settle(session, deployment.clock, job_id)
    finalize(deployment, job_id)
    return job_id


def _odd_error(number: int) -> BatchJobsError:
    codes = (SCRIPT, "c" * 200, None)
    messages = (IMAGE * 20, UNBROKEN * 3, ARABIC)
    return InvalidRequestError(messages[number % 3], param=SCRIPT, code=codes[number % 3])


def _huge(deployment: Deployment) -> str:
    """A job with as many lines and tokens as there can be."""
    job_id = start_job(deployment, [request_line("a", model=MODEL)], filename="huge.jsonl")
    with deployment.database.write() as session:
        begun = deployment.clock.now(session)
        session.execute(
            update(Job)
            .where(Job.id == job_id)
            .values(
                status=JobState.COMPLETED,
                finalizing_at=begun + timedelta(days=29),
                completed_at=begun + timedelta(days=29, seconds=3),
                total_lines=MOST_LINES,
                completed_lines=MOST_LINES - 1,
                failed_lines=1,
                prompt_tokens=MOST_TOKENS,
                cached_tokens=MOST_TOKENS // 7,
                completion_tokens=MOST_TOKENS,
            )
        )
    return job_id


def _add_workers(deployment: Deployment) -> None:
    """More models than a chart has colours, on hosts with names nobody types."""
    with deployment.database.write() as session:
        for number in range(MAX_CHART_MODELS + 3):
            identity = Identity(
                id=f"worker-{number:058}",
                host=f"{'gpu-node-in-a-far-away-rack.' * 7}example" if number else SCRIPT,
                pid=2**31 - 1,
                models=[MODEL] * 6,
                job_id=None,
            )
            condition = Condition(
                loaded_model=f"{number}-{MODEL}",
                tokens_per_second=123456789.0 / (number + 1),
                running=10**6,
                waiting=10**9,
                kv_cache_usage=1.0,
            )
            tokens = 10**11 // (number + 1)
            workers.report(session, deployment.clock, identity, condition, tokens=tokens)


def _add_schedule(deployment: Deployment, run_id: str) -> None:
    suites = [f"/srv/{'deep/' * 30}{UNBROKEN[:200]}-{number}.yaml" for number in range(12)]
    made = add_schedule(
        deployment,
        name="s" * 64,
        cron="0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20 */2 1,2,3,4,5 * *",
        zone="America/Argentina/ComodRivadavia",
        suites=suites,
        model=MODEL,
        priority=100,
    )
    for ago, state in enumerate((SlotState.DONE, SlotState.FAILED, SlotState.MISSED), start=1):
        add_slot(deployment, made, ago, state, run_id, "worse")


def _add_runs(deployment: Deployment) -> dict[str, list[str]]:
    """Of suites with one item, none that has a score, scores beyond measure, and odd texts."""
    base = Purpose.BASELINE
    odd = [Night(right=right, changes=_odd_record) for right in (0.8, 0.2)]
    made = {
        "worse": add_nights(
            deployment,
            [Night(right=0.8, purpose=base, changes=_odd_record), *odd],
            suite="s" * 64,
            model=MODEL,
            items=40,
        )
    }
    pin(deployment, made["worse"][:1])
    more = add_nights(
        deployment, [Night(right=0.1, changes=_odd_record)], suite="s" * 64, model=MODEL, items=40
    )
    made["worse"] += more
    for name, items, changes in (
        ("one-item", 1, None),
        ("none-scored", 20, _unanswered),
        ("beyond-measure", 20, _huge_record),
        ("below-zero", 20, _negative_record),
        ("one-odd-item", 1, _half_record),
    ):
        first = Night(right=0.9, purpose=base, changes=changes)
        made[name] = add_nights(deployment, [first], suite=name, items=items)
        pin(deployment, made[name])
        made[name] += add_nights(
            deployment, [Night(right=0.4, changes=changes)], suite=name, items=items, seed=7
        )
    made["one-run"] = add_nights(deployment, [Night(right=0.5)], suite="one-run", items=20)
    return made


def _odd_record(number: int) -> Mapping[str, Any]:
    item = (SCRIPT, "i" * 400, ARABIC, CHINESE, TURNED)[number % 5] + str(number)
    tags = [f"{SCRIPT}={'t' * 120}", ARABIC, *(f"tag={number % 30}" for _ in range(1))]
    return {
        "item": item,
        "tags": tags,
        "prompt": [{"role": "user", "content": (IMAGE, UNBROKEN * 4, ARABIC)[number % 3]}],
        "text": ANSWERS[number % len(ANSWERS)],
    }


def _unanswered(number: int) -> Mapping[str, Any]:
    why = list(Missing)[number % len(Missing)]
    error = f"{IMAGE} {UNBROKEN}" if why == Missing.REQUEST_FAILED else None
    mark = {"score": None, "missing": str(why), "extracted": None}
    return {"text": "", "error": error, "marks": {METRIC: mark}}


def _huge_record(number: int) -> Mapping[str, Any]:
    return _scored((number + 1) * 1e12)


def _negative_record(number: int) -> Mapping[str, Any]:
    return _scored(-0.0001 * (number + 1))


def _half_record(number: int) -> Mapping[str, Any]:
    """Of one item that is half right, an interval has no ends."""
    return _scored(0.5)


def _scored(score: float) -> Mapping[str, Any]:
    return {"marks": {METRIC: {"score": score, "missing": None, "extracted": str(score)}}}
