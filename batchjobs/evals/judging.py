"""Scored runs → verdicts: the one place that asks the statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy.orm import Session

from batchjobs.evals import pins
from batchjobs.evals.history import scored_run
from batchjobs.evals.outcomes import ScoredRun
from batchjobs.evals.statistics.scores import Score, score
from batchjobs.evals.statistics.simulation import Simulation, simulate
from batchjobs.evals.statistics.validity import Limits
from batchjobs.evals.statistics.verdict import Case, Verdict, verdict, verdicts
from batchjobs.evals.suite import Suite
from batchjobs.evals.tables import EvalRun


def limits_of(suite: Suite) -> Limits:
    asked = suite.limits
    return Limits(
        min_answered=asked.min_answered,
        max_rates=dict(asked.max_rates),
        rate_margin=asked.rate_margin,
        margin=asked.margin,
        floor=asked.floor,
    )


def case_of(session: Session, run: EvalRun, suite: Suite, rerun: EvalRun | None = None) -> Case:
    """A run beside its baseline, with the run that is to confirm it."""
    pinned = [
        one
        for one in pins.baseline_for(session, run)
        if one.id != run.id and run.metric in one.metrics
    ]
    foreign = {one.model for one in pinned} - {run.model}
    return Case(
        candidate=scored_run(session, run),
        baseline=[scored_run(session, one, run.metric) for one in pinned],
        limits=limits_of(suite),
        rerun=None if rerun is None else scored_run(session, rerun, run.metric),
        without=pins.why_without(session, run),
        against=next(iter(foreign), None),
    )


def judge(cases: Sequence[Case]) -> list[Verdict]:
    """Of runs that are judged together, in their order."""
    return verdicts(cases)


def compare(
    session: Session, before: EvalRun, after: EvalRun, suite: Suite, metric: str
) -> Verdict:
    """What is to be said of one run measured against another."""
    return verdict(
        scored_run(session, after, metric),
        [scored_run(session, before, metric)],
        limits_of(suite),
    )


def simulation(baseline: Sequence[ScoredRun], limits: Limits, nights: int) -> Simulation:
    """How often these runs' suite would alarm, by how much they differ. Raises UsageError where
    they tell nothing of that."""
    return simulate(baseline, limits, nights=nights)


def add_intervals(session: Session, run: EvalRun) -> None:
    """Beside each mean of a run's scores, its 95 % interval."""
    assert run.scores is not None
    scores = {}
    for metric, known in run.scores.items():
        found = score([scored_run(session, run, metric)])
        interval = None if found is None else [found.interval.low, found.interval.high]
        scores[metric] = {**known, "interval": interval}
    run.scores = scores


def score_together(session: Session, runs: Sequence[EvalRun], metric: str) -> Score | None:
    """Of several runs of the same items; None without any, or where no item has a score."""
    return score([scored_run(session, run, metric) for run in runs]) if runs else None


def wire(found: Verdict) -> dict[str, Any]:
    """What a run keeps of its verdict: all but the flips, which the scores tell anew."""
    kept = asdict(found)
    del kept["flips"]
    return {**kept, "sentence": found.sentence}
