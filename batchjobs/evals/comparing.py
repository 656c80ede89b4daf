"""Two runs of a suite beside each other, item by item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from batchjobs.deployment import Deployment
from batchjobs.errors import ConflictError
from batchjobs.evals import history, judging
from batchjobs.evals.history import AnswerRecord, Flip
from batchjobs.evals.starting import suite_of
from batchjobs.evals.tables import EvalRun

Texts = tuple[Flip, Sequence[AnswerRecord], Sequence[AnswerRecord]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """`verdict` is what `judging.wire` gives of the two; `flips` are all items that differ, the
    broken first, and `texts` the first of them with the answers before and after."""

    before: EvalRun
    after: EvalRun
    metric: str
    verdict: Mapping[str, Any]
    flips: Sequence[Flip]
    texts: Sequence[Texts]

    @property
    def rows(self) -> list[Mapping[str, Any]]:
        """Of the whole, then of each tag; empty without a verdict."""
        if self.verdict["whole"] is None:
            return []
        return [self.verdict["whole"], *self.verdict["tags"]]

    def wire(self) -> dict[str, Any]:
        return {
            "object": "eval.comparison",
            "before": self.before.id,
            "after": self.after.id,
            "metric": self.metric,
            "verdict": dict(self.verdict),
            "flips": [{**asdict(flip), "way": flip.way} for flip in self.flips],
            "answers": [
                {
                    "item": flip.item,
                    "before": [dict(record.record) for record in was],
                    "after": [dict(record.record) for record in now],
                }
                for flip, was, now in self.texts
            ],
        }


def compare_runs(
    deployment: Deployment,
    before: EvalRun,
    after: EvalRun,
    *,
    metric: str | None = None,
    tag: str | None = None,
    only_broken: bool | None = None,
    skip: int = 0,
    texts: int = 20,
) -> RunComparison:
    """`texts` says of how many items that differ the answers are read, behind the first `skip`;
    with `only_broken`, only those that broke, or if it is False that are fixed, are among them.

    Raises ConflictError for runs of different suites, or one without scores or this metric.
    """
    if before.suite != after.suite:
        raise ConflictError(
            f"These are runs of two suites, {before.suite} and {after.suite}: choose two of one."
        )
    name = metric or after.metric
    suite = suite_of(deployment, after).suite
    with deployment.database.read() as session:
        found = judging.wire(judging.compare(session, before, after, suite, name))
        flips = history.flips(session, [before.id], [after.id], name, tag=tag)
        chosen = [flip for flip in flips if only_broken in (None, flip.is_broken)]
        shown = chosen[skip : skip + texts]
        items = [flip.item for flip in shown]
        was = history.answers_of(session, deployment.store, before, items)
        now = history.answers_of(session, deployment.store, after, items)
    if tag is not None:
        found["tags"] = [row for row in found["tags"] if row["tag"] == tag]
    return RunComparison(
        before=before,
        after=after,
        metric=name,
        verdict=found,
        flips=flips,
        texts=[(flip, was[flip.item], now[flip.item]) for flip in shown],
    )
