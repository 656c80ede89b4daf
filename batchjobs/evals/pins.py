"""The baseline of a suite: runs that a person has pinned. Nothing else ever moves it."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from batchjobs.clock import Clock
from batchjobs.db import hold_lock
from batchjobs.errors import ConflictError
from batchjobs.evals import runs
from batchjobs.evals.tables import EvalPin, EvalRun


def pin(session: Session, clock: Clock, run_ids: Sequence[str]) -> str:
    """Make these runs the baseline of their suite, in place of what it was. The suite.

    Raises:
        NotFoundError: there is no such run.
        ConflictError: one has no scores, or they are not runs of one suite under one condition.
    """
    chosen = [runs.get(session, run_id) for run_id in dict.fromkeys(run_ids)]
    first = chosen[0]
    for run in chosen:
        runs.check_scored(run)
        if run.suite != first.suite:
            raise ConflictError(
                f"The runs {first.id} ({first.suite}) and {run.id} ({run.suite}) are of different"
                " suites: pin each suite's for itself."
            )
        if unlike := unlike_conditions(first, run):
            raise ConflictError(
                f"The runs {first.id} and {run.id} differ in {', '.join(unlike)}: no baseline can"
                " be made of both."
            )
    hold_lock(session, f"eval-pins:{first.suite}")
    now = clock.now(session)
    session.execute(
        update(EvalPin)
        .where(EvalPin.suite == first.suite, EvalPin.unpinned_at.is_(None))
        .values(unpinned_at=now)
    )
    session.add_all(EvalPin(suite=run.suite, run_id=run.id, pinned_at=now) for run in chosen)
    session.flush()
    return first.suite


def pinned(session: Session, suite: str) -> Sequence[EvalRun]:
    """The runs of the baseline, in the order they were started."""
    query = (
        select(EvalRun)
        .join(EvalPin, EvalPin.run_id == EvalRun.id)
        .where(EvalPin.suite == suite, EvalPin.unpinned_at.is_(None))
    )
    return session.scalars(query.order_by(EvalRun.created_at, EvalRun.id)).all()


def counts(session: Session) -> dict[str, int]:
    """How many runs each suite's baseline has; suites without one are left out."""
    query = select(EvalPin.suite, func.count()).where(EvalPin.unpinned_at.is_(None))
    return dict(session.execute(query.group_by(EvalPin.suite)).all())


def baseline_for(session: Session, run: EvalRun) -> Sequence[EvalRun]:
    """What the run is measured against: of the suite's pinned runs those of the same model name,
    or if there are none, all."""
    every = pinned(session, run.suite)
    return [one for one in every if one.model == run.model] or every


def unlike_conditions(one: EvalRun, other: EvalRun) -> list[str]:
    """In what two runs differ besides the model, by name."""
    left, right = one.conditions, other.conditions
    names = [
        name for name in ("items", "prompts", "template", "sampling") if left[name] != right[name]
    ]
    scorers = {metric: left["scorers"].get(metric) for metric in (one.metric, other.metric)}
    others = {metric: right["scorers"].get(metric) for metric in scorers}
    return names if scorers == others else [*names, "scorer"]
