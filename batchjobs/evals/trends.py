"""A suite over many nights: its latest verdicts, and runs that compare as points of a curve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session, defer

from batchjobs.evals import pins, runs
from batchjobs.evals.states import Purpose
from batchjobs.evals.tables import EvalRun

TREND_RUNS = 60
RECENT_RUNS = 14

_NEWEST_FIRST = (runs.ANSWERED_AT.desc(), EvalRun.created_at.desc(), EvalRun.id.desc())


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendPoint:
    """A scored run of the suite; `low` and `high` are its 95 % interval."""

    run: str
    model: str
    at: float
    """When its questions were asked, in seconds of the epoch."""
    score: float
    low: float
    high: float
    word: str | None
    is_pinned: bool
    is_this: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The baseline's score and its 95 % interval, of so many pinned runs together."""

    mean: float
    low: float
    high: float
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A suite on one model: how many runs there are of every kind, how many are pinned, and the
    newest that are judged, the newest first."""

    suite: str
    model: str
    runs: int
    pinned: int
    newest_at: datetime
    recent: Sequence[EvalRun]


def standings(session: Session, *, suite: str | None = None) -> list[Standing]:
    """Of every suite, or one, and each model with runs, by name."""
    query = select(EvalRun.suite, EvalRun.model, func.count(), func.max(EvalRun.created_at))
    if suite is not None:
        query = query.where(EvalRun.suite == suite)
    by_name = (EvalRun.suite, EvalRun.model)
    counted = session.execute(query.group_by(*by_name).order_by(*by_name)).all()
    found: dict[tuple[str, str], list[EvalRun]] = {}
    for run in _newest(session, suite):
        found.setdefault((run.suite, run.model), []).append(run)
    pinned = pins.counts(session)
    return [
        Standing(
            suite=suite,
            model=model,
            runs=count,
            pinned=pinned.get((suite, model), 0),
            newest_at=newest_at,
            recent=found.get((suite, model), ()),
        )
        for suite, model, count, newest_at in counted
    ]


def alike(session: Session, run: EvalRun, *, model: str | None = None) -> list[EvalRun]:
    """Runs of the suite, or of it on one model, that compare with this one and are not younger,
    the newest first."""
    query = select(EvalRun).where(
        EvalRun.suite == run.suite,
        EvalRun.answers_key.is_not(None),
        EvalRun.purpose != Purpose.CONFIRMATION,
        EvalRun.metric == run.metric,
        runs.answered_at(run) >= runs.ANSWERED_AT,
    )
    if model is not None:
        query = query.where(EvalRun.model == model)
    found = session.scalars(query.order_by(*_NEWEST_FIRST).limit(TREND_RUNS)).all()
    return [one for one in found if not pins.unlike_conditions(one, run)]


def points(session: Session, run: EvalRun, found: Sequence[EvalRun]) -> list[TrendPoint]:
    """Of what `alike` found of this run, the oldest first."""
    pinned = {one.id for one in pins.pinned(session, run.suite)}
    every = [_point(one, run, pinned) for one in reversed(found)]
    return [point for point in every if point is not None]


def newest_scored(session: Session, suite: str, model: str) -> EvalRun | None:
    """What a curve of this model ends with."""
    query = select(EvalRun).where(
        EvalRun.suite == suite,
        EvalRun.model == model,
        EvalRun.answers_key.is_not(None),
        EvalRun.purpose != Purpose.CONFIRMATION,
    )
    newest = query.where(runs.IS_LAST_WORD).order_by(*_NEWEST_FIRST).limit(1)
    return session.scalars(newest).first()


def baseline_of(session: Session, run: EvalRun) -> list[EvalRun]:
    """The pinned runs that it can be measured against, itself among them if it is pinned."""
    found = pins.baseline_for(session, run)
    return [
        one for one in found if run.metric in one.metrics and not pins.unlike_conditions(one, run)
    ]


def band(session: Session, baseline: Sequence[EvalRun], metric: str) -> Band | None:
    """Of these runs' scores item by item; None where there are none."""
    from batchjobs.evals.judging import score_together

    found = score_together(session, baseline, metric)
    if found is None:
        return None
    low, high = found.interval.low, found.interval.high
    return Band(mean=found.mean, low=low, high=high, runs=len(baseline))


def _newest(session: Session, suite: str | None) -> Sequence[EvalRun]:
    """`RECENT_RUNS` of each suite and model, the newest first."""
    place = func.row_number().over(
        partition_by=(EvalRun.suite, EvalRun.model),
        order_by=_NEWEST_FIRST,
    )
    judged = select(EvalRun.id, place.label("place")).where(
        EvalRun.purpose == Purpose.RUN, runs.IS_LAST_WORD
    )
    if suite is not None:
        judged = judged.where(EvalRun.suite == suite)
    placed = judged.subquery()
    query = select(EvalRun).join(placed, placed.c.id == EvalRun.id)
    query = query.where(placed.c.place <= RECENT_RUNS)
    query = query.options(
        defer(EvalRun.conditions, raiseload=True), defer(EvalRun.jobs, raiseload=True)
    )
    return session.scalars(query.order_by(*_NEWEST_FIRST)).all()


def _point(one: EvalRun, run: EvalRun, pinned: set[str]) -> TrendPoint | None:
    found = (one.scores or {})[one.metric]
    if found["mean"] is None:
        return None
    low, high = found.get("interval") or (found["mean"], found["mean"])
    return TrendPoint(
        run=one.id,
        model=one.model,
        at=runs.answered_at(one).timestamp(),
        score=found["mean"],
        low=low,
        high=high,
        word=one.word,
        is_pinned=one.id in pinned,
        is_this=one.id == run.id,
    )
