"""What is read of runs, for judging them and for people: facts by the database, texts on demand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import and_, func, select
from sqlalchemy.orm import Session, aliased

from batchjobs.evals import runs
from batchjobs.evals.outcomes import Conditions, ItemOutcome, Missing, ScoredRun
from batchjobs.evals.tables import EvalAnswer, EvalRun, EvalScore
from batchjobs.store.base import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRecord:
    """One answer in full, as the store keeps it."""

    item: str
    sample: int
    tags: tuple[str, ...]
    fields: Mapping[str, Any]
    prompt: Any
    """A text, or messages."""
    text: str
    error: str | None
    finish_reason: str | None
    marks: Mapping[str, Mapping[str, Any]]
    """Metric → `score`, `missing`, `extracted`."""
    record: Mapping[str, Any]

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> AnswerRecord:
        return cls(
            item=record["item"],
            sample=record["sample"],
            tags=tuple(record["tags"]),
            fields=record["fields"],
            prompt=record["prompt"],
            text=record["text"],
            error=record["error"],
            finish_reason=record["finish_reason"],
            marks=record["marks"],
            record=record,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """An item whose mean score differs between two runs; None where a run has no score for it."""

    number: int
    item: str
    tags: tuple[str, ...]
    before: float | None
    after: float | None

    @property
    def is_broken(self) -> bool:
        return self.way == "broken"

    @property
    def way(self) -> str:
        """`broken` or `fixed`; `changed` of an item that was not answered, and is wrong now, or
        the other way round."""
        before, after = self.before or 0.0, self.after or 0.0
        return "changed" if before == after else "broken" if after < before else "fixed"


def scored_run(session: Session, run: EvalRun, metric: str | None = None) -> ScoredRun:
    """A run's outcomes under a metric, by default the deciding one. Raises ConflictError for a run
    without scores, or without this metric."""
    runs.check_scored(run)
    name = runs.metric_of(run, metric)
    conditions = {key: run.conditions[key] for key in _PLAIN_CONDITIONS}
    return ScoredRun(
        run=run.id,
        suite=run.suite,
        metric=name,
        conditions=Conditions(**conditions, scorer=run.conditions["scorers"][name]),
        outcomes=tuple(_outcomes(session, run.id, name)),
    )


def flips(
    session: Session,
    before: Sequence[str],
    after: Sequence[str],
    metric: str,
    *,
    tag: str | None = None,
) -> list[Flip]:
    """The items whose mean scores over these runs and those differ, the broken ones first, the
    greatest change first. An item that one side does not have is left out, one that it could not
    score is not."""
    old, new = _means(before, metric), _means(after, metric)
    answer = aliased(EvalAnswer)
    query = (
        select(answer.number, answer.item, answer.tags, old.c.mean, new.c.mean)
        .join(old, old.c.item == answer.item)
        .join(new, new.c.item == answer.item)
        .where(
            answer.run_id == after[0],
            answer.sample == 0,
            old.c.mean.is_distinct_from(new.c.mean),
        )
        .order_by(answer.number)
    )
    found = [
        Flip(number=number, item=item, tags=tuple(tags), before=was, after=now)
        for number, item, tags, was, now in session.execute(query)
        if tag is None or tag in tags
    ]
    return sorted(
        found,
        key=lambda flip: (_WAYS.index(flip.way), -abs((flip.after or 0) - (flip.before or 0))),
    )


def answers_of(
    session: Session, store: ObjectStore, run: EvalRun, items: Sequence[str]
) -> dict[str, list[AnswerRecord]]:
    """The full records of some items, by item, a record a sample."""
    runs.check_scored(run)
    places = session.execute(
        select(EvalAnswer.item, EvalAnswer.byte_start, EvalAnswer.byte_end)
        .where(EvalAnswer.run_id == run.id, EvalAnswer.item.in_(items))
        .order_by(EvalAnswer.number, EvalAnswer.sample)
    ).all()
    found: dict[str, list[AnswerRecord]] = {}
    for item, start, end in places:
        found.setdefault(item, []).append(_read(store, run, start, end))
    return found


def answers_page(
    session: Session,
    store: ObjectStore,
    run: EvalRun,
    *,
    limit: int,
    offset: int = 0,
    metric: str | None = None,
    missing: Missing | None = None,
    wrong_first: bool = False,
) -> list[AnswerRecord]:
    """Some full records in the dataset's order, or the lowest scores first; with `missing` only
    those without a score for that reason."""
    runs.check_scored(run)
    answer, score = EvalAnswer, EvalScore
    same = and_(
        score.run_id == answer.run_id,
        score.number == answer.number,
        score.sample == answer.sample,
        score.metric == (metric or run.metric),
    )
    query = (
        select(answer.byte_start, answer.byte_end).join(score, same).where(answer.run_id == run.id)
    )
    if missing is not None:
        query = query.where(score.missing == missing)
    order = (score.score, answer.number) if wrong_first else (answer.number,)
    places = session.execute(
        query.order_by(*order, answer.sample).limit(limit).offset(offset)
    ).all()
    return [_read(store, run, start, end) for start, end in places]


def _read(store: ObjectStore, run: EvalRun, start: int, end: int) -> AnswerRecord:
    assert run.answers_key is not None
    with store.open(run.answers_key, start=start, end=end) as stream:
        return AnswerRecord.of(orjson.loads(stream.read()))


def _outcomes(session: Session, run_id: str, metric: str) -> Iterator[ItemOutcome]:
    answer, score = EvalAnswer, EvalScore
    same = and_(
        score.run_id == answer.run_id,
        score.number == answer.number,
        score.sample == answer.sample,
        score.metric == metric,
    )
    query = (
        select(answer.item, answer.sample, score.score, score.missing, answer.cluster, answer.tags)
        .join(score, same)
        .where(answer.run_id == run_id)
        .order_by(answer.number, answer.sample)
    )
    for item, sample, value, missing, cluster, tags in session.execute(query):
        yield ItemOutcome(
            item=item,
            sample=sample,
            score=value,
            missing=missing,
            cluster=cluster,
            tags=tuple(tags),
        )


def _means(run_ids: Sequence[str], metric: str) -> Any:
    """Item → mean score over its answers; None if no answer has a score."""
    answer, score = aliased(EvalAnswer), aliased(EvalScore)
    same = and_(
        score.run_id == answer.run_id,
        score.number == answer.number,
        score.sample == answer.sample,
        score.metric == metric,
    )
    return (
        select(answer.item.label("item"), func.avg(score.score).label("mean"))
        .join(score, same)
        .where(answer.run_id.in_(run_ids))
        .group_by(answer.item)
        .subquery()
    )


_WAYS = ("broken", "fixed", "changed")
_PLAIN_CONDITIONS = ("items", "prompts", "template", "sampling", "model")
