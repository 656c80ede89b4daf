"""The baseline of a suite on a model: runs that a person has pinned. Nothing else ever moves it."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from batchjobs.clock import Clock
from batchjobs.db import hold_lock
from batchjobs.errors import ConflictError
from batchjobs.evals import runs
from batchjobs.evals.tables import EvalPin, EvalRun


def pin(session: Session, clock: Clock, run_ids: Sequence[str]) -> tuple[str, str]:
    """Make these runs the baseline of their suite on their model, in place of what it was. Suite
    and model; the baselines of other models stay.

    Raises:
        NotFoundError: there is no such run.
        ConflictError: one has no scores, or they are not runs of one suite on one model under one
            condition.
    """
    chosen = [runs.get(session, run_id) for run_id in dict.fromkeys(run_ids)]
    first = chosen[0]
    for run in chosen:
        runs.check_scored(run)
        _check_alike(first, run)
    hold_lock(session, f"eval-pins:{first.suite}")
    now = clock.now(session)
    of_both = select(EvalRun.id).where(EvalRun.suite == first.suite, EvalRun.model == first.model)
    session.execute(
        update(EvalPin)
        .where(EvalPin.run_id.in_(of_both), EvalPin.unpinned_at.is_(None))
        .values(unpinned_at=now)
        .execution_options(synchronize_session=False)
    )
    session.add_all(EvalPin(suite=run.suite, run_id=run.id, pinned_at=now) for run in chosen)
    session.flush()
    return first.suite, first.model


def unpin(session: Session, clock: Clock, run_ids: Sequence[str]) -> None:
    """Take these runs out of their baselines.

    Raises:
        NotFoundError: there is no such run.
        ConflictError: one is not pinned.
    """
    now = clock.now(session)
    for run_id in dict.fromkeys(run_ids):
        run = runs.get(session, run_id)
        taken = session.execute(
            update(EvalPin)
            .where(EvalPin.run_id == run.id, EvalPin.unpinned_at.is_(None))
            .values(unpinned_at=now)
        )
        if taken.rowcount == 0:  # type: ignore[attr-defined]  # an UPDATE has one
            raise ConflictError(f"The run {run.id} is not pinned.")


def pinned(session: Session, suite: str, model: str | None = None) -> Sequence[EvalRun]:
    """The runs of the baseline of a suite on a model, or on every model, in the order they were
    started."""
    query = (
        select(EvalRun)
        .join(EvalPin, EvalPin.run_id == EvalRun.id)
        .where(EvalPin.suite == suite, EvalPin.unpinned_at.is_(None))
    )
    if model is not None:
        query = query.where(EvalRun.model == model)
    return session.scalars(query.order_by(EvalRun.created_at, EvalRun.id)).all()


def counts(session: Session) -> dict[tuple[str, str], int]:
    """How many runs the baseline of each suite and model has; those without one are left out."""
    by_name = (EvalPin.suite, EvalRun.model)
    query = (
        select(*by_name, func.count())
        .join(EvalRun, EvalRun.id == EvalPin.run_id)
        .where(EvalPin.unpinned_at.is_(None))
    )
    found = session.execute(query.group_by(*by_name))
    return {(suite, model): count for suite, model, count in found}


def baseline_for(session: Session, run: EvalRun) -> Sequence[EvalRun]:
    """What the run is measured against: the pinned runs of its suite on its model. A model that has
    none is measured against the baseline of another, if that is the only one there is."""
    return _for_model(pinned(session, run.suite), run.model)


def baseline_of_model(session: Session, suite: str, model: str | None) -> Sequence[EvalRun]:
    """What runs of the suite on this model would be measured against."""
    return _for_model(pinned(session, suite), model)


def why_without(session: Session, run: EvalRun) -> str:
    """Why there is nothing to measure the run against."""
    others = sorted({one.model for one in pinned(session, run.suite)})
    if not others:
        return "no baseline is pinned"
    return (
        f"no baseline is pinned for the model {run.model}, and it is not clear which of those for"
        f" {', '.join(others)} it should be measured against"
    )


def _for_model(every: Sequence[EvalRun], model: str | None) -> Sequence[EvalRun]:
    own = [one for one in every if one.model == model]
    return own or (every if len({one.model for one in every}) == 1 else [])


def _check_alike(first: EvalRun, run: EvalRun) -> None:
    for name, one, other in (
        ("suite", first.suite, run.suite),
        ("model", first.model, run.model),
    ):
        if one != other:
            raise ConflictError(
                f"The runs {first.id} ({one}) and {run.id} ({other}) are of different {name}s: pin"
                f" each {name}'s for itself."
            )
    if unlike := unlike_conditions(first, run):
        raise ConflictError(
            f"The runs {first.id} and {run.id} differ in {', '.join(unlike)}: no baseline can be"
            " made of both."
        )


def unlike_conditions(one: EvalRun, other: EvalRun) -> list[str]:
    """In what two runs differ besides the model, by name."""
    left, right = one.conditions, other.conditions
    names = [
        name for name in ("items", "prompts", "template", "sampling") if left[name] != right[name]
    ]
    scorers = {metric: left["scorers"].get(metric) for metric in (one.metric, other.metric)}
    others = {metric: right["scorers"].get(metric) for metric in scorers}
    return names if scorers == others else [*names, "scorer"]
