"""What a run will take, before it is started."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import select
from sqlalchemy.orm import Session

from batchjobs.client.batch import Batch
from batchjobs.evals.rendering import PlannedLine
from batchjobs.evals.suite import Suite
from batchjobs.evals.tables import EvalRun

BYTES_A_TOKEN = 4.0
"""Of English text, roughly, until a run of the suite has counted."""
PROBED_JOBS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """`is_counted` says that a run of the same suite has told the tokens; else they are a guess
    by the text's length, and answers as long as they may be. `seconds` is None where nobody has
    measured the model."""

    items: int
    requests: int
    prompt_tokens: int
    completion_tokens: int
    is_counted: bool
    tokens_per_second: float | None

    @property
    def seconds(self) -> float | None:
        if not self.tokens_per_second:
            return None
        return (self.prompt_tokens + self.completion_tokens) / self.tokens_per_second


def estimate(
    session: Session, suite: Suite, model: str, lines: Iterable[PlannedLine], jobs: Sequence[Batch]
) -> Estimate:
    """`jobs` are recent ones, which tell how fast the model is."""
    items = requests = text = 0
    for line in lines:
        items += line.sample == 0
        requests += 1
        text += len(orjson.dumps(line.body.get("messages") or line.body["prompt"]))
    known = _last_run(session, suite.suite, model)
    per_answer = 0 if suite.request.has_choices else suite.request.sampling.max_tokens
    prompt, completion = text / BYTES_A_TOKEN, requests * per_answer
    if known is not None:
        prompt = known.prompt_tokens / known.samples * requests
        completion = round(known.completion_tokens / known.samples * requests)
    return Estimate(
        items=items,
        requests=requests,
        prompt_tokens=round(prompt),
        completion_tokens=completion,
        is_counted=known is not None,
        tokens_per_second=measured_rate(jobs, model),
    )


def measured_rate(jobs: Sequence[Batch], model: str) -> float | None:
    """Prompt and generated tokens a second of completed jobs of this model alone."""
    tokens = seconds = 0.0
    for job in jobs:
        began, ended = job.wire.get("in_progress_at"), job.wire.get("completed_at")
        if list(job.models) == [model] and began is not None and ended is not None:
            tokens += job.prompt_tokens + job.completion_tokens
            seconds += max(1.0, float(ended) - float(began))
    return tokens / seconds if tokens else None


def _last_run(session: Session, suite: str, model: str) -> EvalRun | None:
    query: Any = (
        select(EvalRun)
        .where(EvalRun.suite == suite, EvalRun.model == model, EvalRun.prompt_tokens > 0)
        .order_by(EvalRun.created_at.desc())
        .limit(1)
    )
    found: EvalRun | None = session.scalars(query).first()
    return found
