"""Runs: the one place where a run's state changes, and where its rows are read and written.

Every change is an UPDATE that names the state it starts from: of two processes that finish the same
run, one does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from sqlalchemy import and_, exists, func, insert, or_, select, update
from sqlalchemy.orm import Session, aliased

from batchjobs.clock import Clock
from batchjobs.errors import ConflictError, NotFoundError
from batchjobs.evals.states import ENDED, RUN_NEXT, Purpose, RunState
from batchjobs.evals.tables import EvalAnswer, EvalRun, EvalScore
from batchjobs.models import Job

ROWS_AT_A_TIME = 1000
METADATA_RUN = "eval_run"
METADATA_SUITE = "eval_suite"
METADATA_PART = "eval_part"
"""Keys of a job's metadata that say what it is of, and which part of it."""


ANSWERED_AT = func.coalesce(EvalRun.answered_at, EvalRun.created_at)
"""When a run's questions were asked, also of one that scores the answers of another again."""

_again = aliased(EvalRun)
IS_LAST_WORD = ~exists().where(
    _again.rescores == func.coalesce(EvalRun.rescores, EvalRun.id),
    _again.answers_key.is_not(None),
    _again.created_at > EvalRun.created_at,
)
"""Whether the answers of a run have not been scored again since."""


def get(session: Session, run_id: str) -> EvalRun:
    """Raises NotFoundError."""
    run = session.get(EvalRun, run_id, populate_existing=True)
    if run is None:
        raise NotFoundError(f"No eval run found with id '{run_id}'; see: batchjobs evals list")
    return run


def answered_at(run: EvalRun) -> datetime:
    return run.answered_at or run.created_at


def of_job(session: Session, job: Job) -> EvalRun | None:
    """The run that a job answers or judges for. What a job says of itself anybody can write: the
    run must say the same."""
    named = (job.job_metadata or {}).get(METADATA_RUN)
    run = session.get(EvalRun, named) if isinstance(named, str) else None
    return run if run is not None and job.id in jobs_of(run) else None


def jobs_of(run: EvalRun) -> list[str]:
    """Those that answer, then those that judge."""
    return [*run.jobs["answers"], *(job for ids in judges_of(run).values() for job in ids)]


def judges_of(run: EvalRun) -> dict[str, list[str]]:
    """Metric → the jobs in which its judge grades, none if there was nothing to grade."""
    # Of runs of before, it is one job or null.
    return {
        metric: [ids] if isinstance(ids, str) else ids or []
        for metric, ids in run.jobs["judges"].items()
    }


def page(
    session: Session,
    *,
    limit: int,
    after: str | None = None,
    suite: str | None = None,
    model: str | None = None,
) -> tuple[Sequence[EvalRun], bool]:
    """At most `limit` runs, the newest first, that follow the run `after`, and whether more do.

    Raises NotFoundError for an unknown `after`.
    """
    query = select(EvalRun).order_by(EvalRun.created_at.desc(), EvalRun.id.desc())
    if suite is not None:
        query = query.where(EvalRun.suite == suite)
    if model is not None:
        query = query.where(EvalRun.model == model)
    if after is not None:
        last = get(session, after)
        same = EvalRun.created_at == last.created_at
        query = query.where(
            or_(EvalRun.created_at < last.created_at, and_(same, EvalRun.id < last.id))
        )
    found = session.scalars(query.limit(limit + 1)).all()
    return found[:limit], len(found) > limit > 0


def of_night(session: Session, night: str) -> Sequence[EvalRun]:
    """The runs that are judged together, in the order they were started."""
    query = select(EvalRun).where(EvalRun.night == night, EvalRun.purpose == Purpose.RUN)
    return session.scalars(query.order_by(EvalRun.created_at, EvalRun.id)).all()


def unsubmitted(session: Session, suite: str, model: str, purpose: Purpose) -> Sequence[EvalRun]:
    """The runs begun by hand whose requests are not all submitted, the oldest first."""
    query = select(EvalRun).where(
        EvalRun.state == RunState.SUBMITTING,
        EvalRun.suite == suite,
        EvalRun.model == model,
        EvalRun.purpose == purpose,
        EvalRun.night.startswith("run_"),
    )
    return session.scalars(query.order_by(EvalRun.created_at, EvalRun.id)).all()


def confirmation_of(session: Session, run_id: str) -> EvalRun | None:
    """The run that was started to confirm this one, the newest if there are several."""
    query = select(EvalRun).where(EvalRun.confirms == run_id)
    return session.scalars(query.order_by(EvalRun.created_at.desc()).limit(1)).first()


def rescored(session: Session, run_id: str) -> Sequence[EvalRun]:
    """The runs that score the answers of this one again, the oldest first."""
    query = select(EvalRun).where(EvalRun.rescores == run_id)
    return session.scalars(query.order_by(EvalRun.created_at, EvalRun.id)).all()


def add(session: Session, clock: Clock, run: EvalRun) -> None:
    run.created_at = clock.now(session)
    session.add(run)
    session.flush()


def move(
    session: Session,
    clock: Clock,
    run_id: str,
    *,
    of: RunState,
    to: RunState,
    values: Mapping[str, Any] | None = None,
) -> bool:
    """Whether the run was in the state `of`, and now is in `to` with these values."""
    assert to in RUN_NEXT[of]
    ended = {"finished_at": clock.now(session)} if to in ENDED else {}
    moved = session.execute(
        update(EvalRun)
        .where(EvalRun.id == run_id, EvalRun.state == of)
        .values(state=to, **ended, **(values or {}))
    )
    return bool(moved.rowcount == 1)  # type: ignore[attr-defined]  # an UPDATE has one


def set_night(session: Session, run_id: str, night: str) -> None:
    """Of a run that is taken on: it is judged with those that are begun now."""
    session.execute(update(EvalRun).where(EvalRun.id == run_id).values(night=night))


def add_marks(
    session: Session, answers: Iterable[Mapping[str, Any]], scores: Iterable[Mapping[str, Any]]
) -> None:
    """Rows of `EvalAnswer` and `EvalScore`, in bounded memory."""
    for table, rows in ((EvalAnswer, answers), (EvalScore, scores)):
        for some in _chunks(rows, ROWS_AT_A_TIME):
            session.execute(insert(table), some)


def check_scored(run: EvalRun) -> None:
    """Raises ConflictError for a run without marks."""
    if run.state == RunState.FAILED:
        raise ConflictError(f"The run {run.id} failed: {run.reason}")
    if run.scores is None:
        raise ConflictError(
            f"The run {run.id} is not finished: it is {run.state}."
            f" Go on with it: batchjobs evals resume {run.id}"
        )


def metric_of(run: EvalRun, asked: str | None) -> str:
    """The metric asked for, or the deciding one. Raises ConflictError for one that it has not."""
    name = asked or run.metric
    if name not in run.metrics:
        raise ConflictError(
            f"The run {run.id} has no metric {name!r}; it has: {', '.join(run.metrics)}."
        )
    return name


def _chunks(rows: Iterable[Mapping[str, Any]], size: int) -> Iterator[list[Mapping[str, Any]]]:
    left = iter(rows)
    while some := list(islice(left, size)):
        yield some
