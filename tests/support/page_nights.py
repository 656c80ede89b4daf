"""Weeks of nights, as the page shows them: suites with runs of every verdict."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import insert
from sqlalchemy.orm import Session

from batchjobs.deployment import Deployment
from batchjobs.evals import judging, pins, runs
from batchjobs.evals.outcomes import Missing
from batchjobs.evals.runs import METADATA_RUN, METADATA_SUITE
from batchjobs.evals.scorers.base import Mark
from batchjobs.evals.states import Purpose, RunState
from batchjobs.evals.suite_file import parse_suite
from batchjobs.evals.tables import EvalAnswer, EvalRun, EvalScore
from batchjobs.evals.tally import Tally
from batchjobs.ids import new_run_id
from batchjobs.jsonl import dump_line
from batchjobs.store.layout import eval_key
from tests.support.jobs import clock_of, create_job

KINDS = ("add", "divide", "percent")
MODELS = ("smollm2-1.7b-instruct", "qwen3-8b")
METRIC = "numeric"
SUITE = """\
suite: {name}
description: Sums as people write them.
dataset: {{source: items.jsonl, tags: [kind]}}
request: {{prompt: "{{{{ question }}}}"}}
scorers: [{{type: numeric, target: "{{{{ answer }}}}"}}]
"""
QUESTION = (
    "A shop sells {0} boxes of {1} pencils each, and gives {2} pencils back because they were"
    " broken. How many pencils have been sold in the end? Think step by step, and end with the"
    " number alone."
)
STEPS = (
    "There are {0} boxes with {1} pencils in each box, so the shop sells {0} × {1} = {2} pencils"
    " first. Then {3} of them come back as they are broken.\n\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """One run to be: the share of items it gets right, and how it ends."""

    right: float
    purpose: Purpose = Purpose.RUN
    truncated: int = 0
    changes: Callable[[int], Mapping[str, Any]] | None = None
    """What is other in the answer to an item, by its number."""


def add_nights(
    deployment: Deployment,
    nights: Sequence[Night],
    *,
    suite: str = "arithmetic",
    model: str = MODELS[0],
    items: int = 160,
    seed: int = 1,
) -> list[str]:
    """Ids of runs that have ended, the oldest first; those that are judged are a day apart."""
    made = []
    for number, night in enumerate(nights):
        is_judged = night.purpose == Purpose.RUN
        clock_of(deployment).advance(timedelta(days=1) if is_judged else timedelta(minutes=7))
        chance = random.Random(100 * seed + number)  # the same every time
        made.append(_add_run(deployment, night, suite, model, items, chance))
        if is_judged:
            _judge(deployment, made[-1])
    return made


def pin(deployment: Deployment, run_ids: Sequence[str]) -> None:
    with deployment.database.write() as session:
        pins.pin(session, deployment.clock, run_ids)


BASELINE = [Night(right=0.80, purpose=Purpose.BASELINE)] * 3
WEEKS = [
    *(Night(right=right) for right in (0.8, 0.79, 0.82, 0.8, 0.81, 0.78)),
    Night(right=0.8, truncated=12),
    *(Night(right=right) for right in (0.81, 0.79, 0.93, 0.8, 0.8, 0.52)),
]


def populate_evals(deployment: Deployment) -> dict[str, list[str]]:
    """Runs by suite: one that got worse, one on another model, and one without a baseline."""
    base = add_nights(deployment, BASELINE)
    other = add_nights(deployment, BASELINE, model=MODELS[1], seed=2)
    pin(deployment, base)
    pin(deployment, other)
    made = {
        "baseline": base,
        "worse": add_nights(deployment, WEEKS, seed=3),
        "other": add_nights(deployment, [Night(right=0.88)] * 3, model=MODELS[1], seed=4),
        "bare": add_nights(deployment, [Night(right=0.6)] * 2, suite="json-fields", items=40),
    }
    made["running"] = [_begin(deployment, "arithmetic", MODELS[0])]
    made["failed"] = [_begin(deployment, "json-fields", MODELS[1])]
    with deployment.database.write() as session:
        runs.move(
            session,
            deployment.clock,
            made["failed"][0],
            of=RunState.ANSWERING,
            to=RunState.FAILED,
            values={"reason": "The requests were refused (batch_1): there is no model 'qwen3-8b'."},
        )
    return made


def suite_of(name: str) -> str:
    return SUITE.format(name=name)


def _begin(deployment: Deployment, suite: str, model: str) -> str:
    """A run whose job is under way."""
    run_id = new_run_id()
    job_id = create_job(
        deployment, "file-on-its-way", metadata={METADATA_RUN: run_id, METADATA_SUITE: suite}
    )
    run = _run(deployment, run_id, suite, model, [job_id], items=160, night=Night(right=1))
    with deployment.database.write() as session:
        runs.add(session, deployment.clock, run)
    return run_id


def _run(
    deployment: Deployment,
    run_id: str,
    suite: str,
    model: str,
    job_ids: list[str],
    *,
    items: int,
    night: Night,
) -> EvalRun:
    key = eval_key(run_id, "suite", "1")
    deployment.store.put(key, suite_of(suite).encode())
    return EvalRun(
        id=run_id,
        suite=suite,
        model=model,
        state=RunState.ANSWERING,
        purpose=night.purpose,
        night=run_id,
        metric=METRIC,
        metrics=[METRIC],
        suite_path=f"/srv/evals/{suite}.yaml",
        suite_key=key,
        dataset_sha256="4d7a" * 16,
        conditions={
            "items": "a1" * 32,
            "prompts": "b2" * 32,
            "template": "c3" * 32,
            "sampling": "d4" * 32,
            "scorers": {METRIC: "e5" * 32},
            "model": model.ljust(64, "0"),
        },
        jobs={"answers": job_ids, "judges": {}},
        items=items,
        samples=items,
        prompt_tokens=0,
        completion_tokens=0,
        confirms=None,
    )


def _add_run(
    deployment: Deployment, night: Night, suite: str, model: str, items: int, chance: random.Random
) -> str:
    run_id = new_run_id()
    job_id = create_job(
        deployment, "file-none", metadata={METADATA_RUN: run_id, METADATA_SUITE: suite}
    )
    run = _run(deployment, run_id, suite, model, [job_id], items=items, night=night)
    key = eval_key(run_id, "answers", "1")
    records = [
        {**_record(number, night, chance), **(night.changes(number) if night.changes else {})}
        for number in range(items)
    ]
    answers, scores, place, lines = [], [], 0, []
    for number, record in enumerate(records):
        line = dump_line(record)
        lines.append(line)
        answers.append(_answer_row(run_id, number, record, place, place + len(line)))
        mark = record["marks"][METRIC]
        scores.append(
            {
                "run_id": run_id,
                "metric": METRIC,
                "number": number,
                "sample": 0,
                "score": mark["score"],
                "missing": mark["missing"],
            }
        )
        place += len(line)
    deployment.store.put(key, b"".join(lines))

    def keep(session: Session) -> None:
        runs.add(session, deployment.clock, run)
        runs.move(
            session,
            deployment.clock,
            run_id,
            of=RunState.ANSWERING,
            to=RunState.SCORED,
            values={
                "answers_key": key,
                "scores": {METRIC: _sums(records)},
                "prompt_tokens": 96 * items,
                "completion_tokens": 118 * items,
            },
        )
        session.execute(insert(EvalAnswer), answers)
        session.execute(insert(EvalScore), scores)
        judging.add_intervals(session, runs.get(session, run_id))

    deployment.database.transact(keep)
    if night.purpose != Purpose.RUN:
        with deployment.database.write() as session:
            runs.move(session, deployment.clock, run_id, of=RunState.SCORED, to=RunState.FINISHED)
    return run_id


def _judge(deployment: Deployment, run_id: str) -> None:
    """As finishing does, but that nothing is confirmed."""
    with deployment.database.write() as session:
        run = runs.get(session, run_id)
        suite = parse_suite(suite_of(run.suite), Path(run.suite_path)).suite
        [found] = judging.judge([judging.case_of(session, run, suite)])
        kept = judging.wire(found)
        runs.move(
            session,
            deployment.clock,
            run_id,
            of=RunState.SCORED,
            to=RunState.FINISHED,
            values={"verdict": kept, "word": str(kept["word"])},
        )


def _record(number: int, night: Night, chance: random.Random) -> dict[str, Any]:
    one, other, back = 3 + number, 12 + number % 7, 1 + number % 9
    answer = one * other - back
    is_right = (
        (number * 37 % 100) / 100 < night.right
        if chance.random() > 0.06
        else chance.random() < night.right
    )
    is_cut = number < night.truncated
    said = answer if is_right else answer + chance.choice((-10, 1, 9))
    steps = STEPS.format(one, other, one * other, back) * (4 if number % 3 == 0 else 1)
    text = steps if is_cut else f"{steps}So {one * other} − {back} = **{said}**"
    return {
        "item": f"sum-{number:04}",
        "sample": 0,
        "tags": [f"kind={KINDS[number % len(KINDS)]}"],
        "fields": {"answer": answer},
        "prompt": [{"role": "user", "content": QUESTION.format(one, other, back)}],
        "text": text,
        "error": None,
        "finish_reason": "length" if is_cut else "stop",
        "marks": {
            METRIC: {
                "score": None if is_cut else float(is_right),
                "missing": str(Missing.TRUNCATED) if is_cut else None,
                "extracted": None if is_cut else str(said),
            }
        },
    }


def _answer_row(
    run_id: str, number: int, record: Mapping[str, Any], start: int, end: int
) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "number": number,
        "sample": 0,
        "item": record["item"],
        "cluster": record["item"],
        "tags": record["tags"],
        "finish_reason": record["finish_reason"],
        "item_digest": "0" * 64,
        "prompt_digest": "0" * 64,
        "byte_start": start,
        "byte_end": end,
    }


def _sums(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    tally = Tally([METRIC])
    for record in records:
        mark = record["marks"][METRIC]
        missing = None if mark["missing"] is None else Missing(mark["missing"])
        tally.add({METRIC: Mark(score=mark["score"], missing=missing)}, record["tags"])
    found: dict[str, Any] = tally.wire()[METRIC]
    return found
