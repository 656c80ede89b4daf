"""Answers → marks: a run's plan, its answers and its judges' words, line by line."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import orjson

from batchjobs.client.batch import Batch
from batchjobs.errors import IntegrityError, InvalidFileError
from batchjobs.evals import runs
from batchjobs.evals.answers import Answer, kept_answer, words_of
from batchjobs.evals.joining import NO_RESULT, Results
from batchjobs.evals.outcomes import Missing
from batchjobs.evals.scorers.base import Mark, Marks
from batchjobs.evals.scorers.judge import Judge
from batchjobs.evals.submission import read_plan
from batchjobs.evals.suite import Suite
from batchjobs.evals.tables import EvalRun
from batchjobs.evals.tally import Tally
from batchjobs.evals.templates import TemplateError
from batchjobs.evals.workplace import Workplace
from batchjobs.jsonl import dump_line
from batchjobs.store.layout import eval_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """`key` is the object of all answers in full; rows for the database are read from it."""

    key: str
    scores: Mapping[str, Any]
    prompt_tokens: int
    completion_tokens: int


def score_run(
    place: Workplace,
    run: EvalRun,
    suite: Suite,
    judgements: Mapping[str, Sequence[Batch]],
) -> Scored:
    """Write the object of a run's answers with their marks. `judgements` has each judge's jobs by
    its metric.

    Raises InvalidFileError where a scorer does not fit an item; nothing is kept then.
    """
    tally = Tally(suite.metrics)
    tokens = [0, 0]
    key = eval_key(run.id, "answers", secrets.token_hex(4))
    with place.deployment.store.create(key) as target:
        for planned, answer, judged in _joined(place, run, judgements):
            marks = _marks(suite, planned, answer, judged)
            tally.add(marks, planned["tags"])
            tokens[0] += answer.prompt_tokens
            tokens[1] += answer.completion_tokens
            target.write(_record(planned, answer, judged, marks))
    return Scored(
        key=key, scores=tally.wire(), prompt_tokens=tokens[0], completion_tokens=tokens[1]
    )


def answer_rows(place: Workplace, run_id: str, key: str) -> Iterator[Mapping[str, Any]]:
    """Rows of `EvalAnswer`."""
    for record, start, end in _records(place, key):
        yield {
            "run_id": run_id,
            "byte_start": start,
            "byte_end": end,
            **{name: record[name] for name in _COLUMNS},
        }


def score_rows(place: Workplace, run_id: str, key: str) -> Iterator[Mapping[str, Any]]:
    """Rows of `EvalScore`."""
    for record, _, _ in _records(place, key):
        for metric, mark in record["marks"].items():
            yield {
                "run_id": run_id,
                "metric": metric,
                "number": record["number"],
                "sample": record["sample"],
                "score": mark["score"],
                "missing": None if mark["missing"] is None else Missing(mark["missing"]),
            }


def answers_beside(
    place: Workplace, run: EvalRun
) -> Iterator[tuple[dict[str, Any], Answer, dict[str, Answer]]]:
    """Every line of the plan with its answer, in order, and what judges said of it before, if the
    run scores the answers of another again."""
    if run.rescores is not None:
        yield from _kept_beside(place, run, run.rescores)
        return
    answers = [place.client.batch(job) for job in run.jobs["answers"]]
    found = Results(place.client, answers).beside(
        planned["custom_id"] for planned in plan_of(place, run)
    )
    for planned, answer in zip(plan_of(place, run), found, strict=True):
        yield planned, answer or NO_RESULT, {}


def plan_of(place: Workplace, run: EvalRun) -> Iterator[dict[str, Any]]:
    assert run.plan_key is not None
    with place.deployment.store.open(run.plan_key) as stream:
        yield from read_plan(stream)


def _kept_beside(
    place: Workplace, run: EvalRun, rescored: str
) -> Iterator[tuple[dict[str, Any], Answer, dict[str, Answer]]]:
    """Raises IntegrityError if the answers kept are not those to the plan's questions."""
    with place.deployment.database.read() as session:
        key = runs.get(session, rescored).answers_key
    assert key is not None
    kept = set(run.jobs.get("kept", ()))
    for planned, (record, _, _) in zip(plan_of(place, run), _records(place, key), strict=True):
        if any(planned[name] != record[name] for name in _ASKED):
            raise IntegrityError(f"The answer to item {record['item']} is to another question.")
        judged = record["judges"].items()
        words = {metric: kept_answer(said) for metric, said in judged if metric in kept}
        yield planned, kept_answer(record), words


def _joined(
    place: Workplace, run: EvalRun, judgements: Mapping[str, Sequence[Batch]]
) -> Iterator[tuple[dict[str, Any], Answer, dict[str, Answer]]]:
    """Plan, answers and what each judge said side by side; a judge has no line for an answer that
    it was not asked about."""
    words = {metric: _judged(place, run, batches) for metric, batches in judgements.items()}
    for planned, answer, before in answers_beside(place, run):
        said = {metric: next(found) for metric, found in words.items()}
        now = {metric: one for metric, one in said.items() if one is not None}
        yield planned, answer, {**before, **now}
    for found in words.values():
        next(found, None)  # which sees to it that no judgement is left over


def _judged(place: Workplace, run: EvalRun, batches: Sequence[Batch]) -> Iterator[Answer | None]:
    return Results(place.client, batches).beside(
        planned["custom_id"] for planned in plan_of(place, run)
    )


def _marks(
    suite: Suite, planned: Mapping[str, Any], answer: Answer, judged: Mapping[str, Answer]
) -> Marks:
    marks: dict[str, Mark] = {}
    is_cut_off = answer.is_truncated and not answer.likelihoods
    for scorer in suite.scorers:
        try:
            if is_cut_off and suite.request.truncated == "missing":
                marks |= dict.fromkeys(scorer.metrics, Mark(missing=Missing.TRUNCATED))
            elif isinstance(scorer, Judge) and scorer.metrics[0] in judged:
                marks |= scorer.grade(answer, judged[scorer.metrics[0]])
            else:
                marks |= scorer.score(planned["fields"], answer)
        except TemplateError as wrong:
            raise InvalidFileError(
                f"Item {planned['item']} does not fit the scorer `{scorer.kind}`: {wrong.message}."
            ) from wrong
    return marks


def _record(
    planned: Mapping[str, Any], answer: Answer, judged: Mapping[str, Answer], marks: Marks
) -> bytes:
    return dump_line(
        {
            **{name: planned[name] for name in (*_PLANNED, "fields", "prompt")},
            **words_of(answer),
            "judges": {metric: words_of(said) for metric, said in judged.items()},
            "marks": {
                metric: {"score": mark.score, "missing": mark.missing, "extracted": mark.extracted}
                for metric, mark in marks.items()
            },
        }
    )


def _records(place: Workplace, key: str) -> Iterator[tuple[dict[str, Any], int, int]]:
    """Each with the bytes of the object that it is."""
    start = 0
    with closing(place.deployment.store.open(key)) as stream:
        for line in stream:
            yield orjson.loads(line), start, start + len(line)
            start += len(line)


_PLANNED = ("number", "sample", "item", "cluster", "tags", "item_digest", "prompt_digest")
_COLUMNS = (*_PLANNED, "finish_reason")
_ASKED = ("number", "sample", "prompt_digest")
