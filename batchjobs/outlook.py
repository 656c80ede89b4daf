"""When jobs will end: from what is left of them, what goes before them, and what workers do.

| a job | is |
|---|---|
| with an `eta` behind its deadline | at risk |
| with so much known work before it that its deadline is out of reach | at risk, its `eta` unknown |
| without an `eta` in the last tenth of its window | at risk |
| with lines of a model that no live worker serves | noticed, its `eta` unknown |
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from batchjobs.queue.tallies import Tally

UNSURE_SHARE = 0.1
"""Of a job's window: without an `eta` it is at risk when no more than this is left."""
_FAR_SECONDS = 10 * 365 * 24 * 3600
"""An `eta` that is further away is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """What requests to a model took on average."""

    prompt_tokens_per_byte: float
    completion_tokens_per_line: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What is left of a job for one model; `tokens` is None while that is unknown."""

    model: str
    lines: int
    tokens: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenJob:
    """A job that has not ended. `shares` is empty until it is validated."""

    id: str
    created_at: datetime
    expires_at: datetime
    shares: tuple[Share, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveWorker:
    """`models` are those it serves, None any; with a `job_id` it works on that job only.

    `tokens_per_second` is what it does with its `loaded_model`, None until it is measured.
    """

    models: frozenset[str] | None = None
    job_id: str | None = None
    loaded_model: str | None = None
    tokens_per_second: float | None = None

    def serves(self, job_id: str, model: str) -> bool:
        return (self.models is None or model in self.models) and self.job_id in (None, job_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """`eta` is None while it is unknown; `notice` is a sentence on what keeps the job waiting."""

    eta: datetime | None = None
    at_risk: bool = False
    notice: str | None = None


NOTHING_AHEAD = Outlook()
"""Of a job that has ended, or of which nothing is known."""


def estimate_remaining_tokens(
    done: Tally, *, total_lines: int, total_bytes: float, habit: Habit | None = None
) -> float | None:
    """Tokens that the unanswered lines will take, from what the answered ones took.

    Prompt tokens are taken to follow the bytes of the lines, completion tokens their number.
    While no request has been run, `habit` tells; None without.
    """
    answered = done.completed + done.failed
    if done.prompt_tokens:
        habit = Habit(
            prompt_tokens_per_byte=done.prompt_tokens / done.input_bytes,
            completion_tokens_per_line=done.completion_tokens / answered,
        )
    if habit is None:
        return None
    prompt = max(0.0, total_bytes - done.input_bytes) * habit.prompt_tokens_per_byte
    return prompt + (total_lines - answered) * habit.completion_tokens_per_line


def foresee(
    jobs: Iterable[OpenJob], workers: Collection[LiveWorker], now: datetime
) -> dict[str, Outlook]:
    """The outlook of each job by its id; `jobs` come in the order in which they are claimed."""
    queue = _Queue(workers)
    return {job.id: _outlook(job, queue.enter(job), workers, now) for job in jobs}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wait:
    """At least so long; `is_known` if also about so long."""

    seconds: float
    is_known: bool


class _Queue:
    """What the jobs that have entered so far leave to do for those behind, model by model."""

    def __init__(self, workers: Collection[LiveWorker]) -> None:
        self._rates: defaultdict[tuple[str | None, str], float] = defaultdict(float)
        for worker in workers:
            if worker.loaded_model is not None and worker.tokens_per_second:
                self._rates[worker.job_id, worker.loaded_model] += worker.tokens_per_second
        self._ahead: defaultdict[str, float] = defaultdict(float)
        self._unknown: set[str] = set()

    def enter(self, job: OpenJob) -> _Wait:
        """Until the job's last share is done; its shares run side by side."""
        waits = [self._enter(job.id, share) for share in job.shares if share.lines]
        return _Wait(
            seconds=max((wait.seconds for wait in waits), default=0.0),
            is_known=bool(job.shares) and all(wait.is_known for wait in waits),
        )

    def _enter(self, job_id: str, share: Share) -> _Wait:
        model, tokens = share.model, share.tokens or 0.0
        own, shared = self._rates[job_id, model], self._rates[None, model]
        if share.tokens is None:
            self._unknown.add(model)
        if not own + shared:
            return _Wait(seconds=0.0, is_known=False)
        ahead = self._ahead[model]
        seconds = (ahead + tokens) / (own + shared)
        if own and tokens / own < seconds:  # its own worker ends it before the shared ones come
            seconds = tokens / own
        self._ahead[model] += max(0.0, tokens - own * seconds)
        return _Wait(seconds=seconds, is_known=model not in self._unknown)


def _outlook(job: OpenJob, wait: _Wait, workers: Collection[LiveWorker], now: datetime) -> Outlook:
    unserved = list(_unserved(job, workers))
    is_known = wait.is_known and not unserved and wait.seconds < _FAR_SECONDS
    eta = now + timedelta(seconds=wait.seconds) if is_known else None
    left = (job.expires_at - now).total_seconds()
    unsure = (job.expires_at - job.created_at).total_seconds() * UNSURE_SHARE
    return Outlook(
        eta=eta,
        at_risk=wait.seconds > left or (eta is None and left <= unsure),
        notice=_notice(unserved) if unserved else None,
    )


def _unserved(job: OpenJob, workers: Collection[LiveWorker]) -> Iterator[str]:
    for share in job.shares:
        if share.lines and not any(worker.serves(job.id, share.model) for worker in workers):
            yield share.model


def _notice(models: Collection[str]) -> str:
    names = ", ".join(f"'{model}'" for model in models)
    options = " ".join(f"--model {shlex.quote(model)}" for model in models)
    return (
        f"No live worker serves the model{'s' if len(models) > 1 else ''} {names};"
        f" start one with: batchjobs worker {options}"
    )
