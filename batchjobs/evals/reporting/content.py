"""What every report of a run says, before it has a form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from batchjobs.deployment import Deployment
from batchjobs.evals import history, pins, runs
from batchjobs.evals.history import AnswerRecord, Flip
from batchjobs.evals.starting import suite_of
from batchjobs.evals.states import Purpose
from batchjobs.evals.suite import Suite
from batchjobs.evals.tables import EvalRun
from batchjobs.evals.trends import TrendPoint, alike, points

SHOWN_FLIPS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipTexts:
    """An item that differs from the baseline, with answers of the run and of a pinned one."""

    flip: Flip
    before: Sequence[AnswerRecord]
    after: Sequence[AnswerRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """`flips` counts all items that differ from the baseline's newest run, whose first are
    `texts`; `last` is the run before this one, for information."""

    run: EvalRun
    suite: Suite
    baseline: Sequence[EvalRun]
    last: EvalRun | None
    trend: Sequence[TrendPoint]
    flips: Sequence[Flip]
    texts: Sequence[FlipTexts]

    @property
    def verdict(self) -> Mapping[str, Any]:
        return self.run.verdict or {}

    @property
    def word(self) -> str:
        if self.run.purpose == Purpose.RUN:
            return self.run.word or "not judged yet"
        return str(self.run.purpose)

    @property
    def scores(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = (self.run.scores or {})[self.run.metric]
        return found

    @property
    def rows(self) -> list[Mapping[str, Any]]:
        """The verdict's comparison of the whole, then of each tag that is judged."""
        if not self.verdict or self.verdict["whole"] is None:
            return []
        return [self.verdict["whole"], *self.verdict["tags"]]


def gather(deployment: Deployment, run_id: str, *, flips: int = SHOWN_FLIPS) -> Content:
    """Of at most so many items that differ the answers are read.

    Raises NotFoundError, or ConflictError for a run without scores.
    """
    with deployment.database.read() as session:
        run = runs.get(session, run_id)
        runs.check_scored(run)
        suite = suite_of(deployment, run).suite
        baseline = [one for one in pins.baseline_for(session, run) if one.id != run.id]
        trend, last = _trend(session, run)
        found, texts = _flips(session, deployment, run, baseline, flips)
    return Content(
        run=run, suite=suite, baseline=baseline, last=last, trend=trend, flips=found, texts=texts
    )


def _trend(session: Session, run: EvalRun) -> tuple[list[TrendPoint], EvalRun | None]:
    """Runs of the suite that compare with this one, the oldest first; and its last one."""
    found = alike(session, run)
    last = next((one for one in found if one.id != run.id and one.model == run.model), None)
    return points(session, run, found), last


def _flips(
    session: Session,
    deployment: Deployment,
    run: EvalRun,
    baseline: Sequence[EvalRun],
    limit: int,
) -> tuple[Sequence[Flip], list[FlipTexts]]:
    """Against all pinned runs together; texts are the newest's."""
    usable = [one for one in baseline if run.metric in one.metrics]
    if not usable:
        return [], []
    found = history.flips(session, [one.id for one in usable], [run.id], run.metric)
    items = [flip.item for flip in found[:limit]]
    before = history.answers_of(session, deployment.store, usable[-1], items)
    after = history.answers_of(session, deployment.store, run, items)
    texts = [
        FlipTexts(flip=flip, before=before.get(flip.item, ()), after=after[flip.item])
        for flip in found[:limit]
    ]
    return found, texts
