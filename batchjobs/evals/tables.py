"""The tables of evals. Facts lie here; answers and questions in the store, under the keys named
here."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, Double, ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from batchjobs.evals.figures import Figures
from batchjobs.evals.outcomes import Missing
from batchjobs.evals.states import Purpose, RunState
from batchjobs.models import Base, RowId, UserText, UserWord, column_of


class EvalRun(Base):
    """One run of a suite on one model. `state` moves only in `evals.runs`, as `RUN_NEXT` allows.

    | column | set |
    |---|---|
    | jobs | when all are submitted; a judge's have the name of its metric |
    | plan_key | until it is scored: what was asked, line by line |
    | answers_key, scores | once it is scored |
    | verdict, word | when it is finished, of a run that is judged |
    """

    __tablename__ = "eval_runs"
    __table_args__ = (
        Index(None, "suite", "created_at", "id"),
        Index(None, "created_at", "id"),
        Index(None, "confirms"),
        Index(None, "night"),
        Index(None, "rescores"),
    )

    id: Mapped[str] = mapped_column(UserWord(64), primary_key=True)
    suite: Mapped[str] = mapped_column(UserWord(64))
    model: Mapped[str] = mapped_column(UserText)
    """As the suite or the caller named it."""
    state: Mapped[RunState] = mapped_column(column_of(RunState))
    reason: Mapped[str | None] = mapped_column(UserText)
    purpose: Mapped[Purpose] = mapped_column(column_of(Purpose))
    night: Mapped[str] = mapped_column(UserWord(64))
    """The same for runs that are judged together; by default the run's own id."""
    metric: Mapped[str] = mapped_column(UserWord(160))
    """The one that decides."""
    metrics: Mapped[list[str]]
    suite_path: Mapped[str] = mapped_column(UserText)
    suite_key: Mapped[str] = mapped_column(String(255))
    """The suite's file, as it was."""
    dataset_sha256: Mapped[str] = mapped_column(String(64))
    conditions: Mapped[dict[str, Any]] = mapped_column(JSON)
    """`Conditions` by name, but for the scorer's: `scorers` has one for each metric."""
    jobs: Mapped[dict[str, Any]] = mapped_column(JSON)
    """`answers`: ids; `judges`: metric → ids."""
    terms: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    """`window` and `priority` of its jobs. None of runs of before."""
    plan_key: Mapped[str | None] = mapped_column(String(255))
    answers_key: Mapped[str | None] = mapped_column(String(255))
    items: Mapped[int]
    samples: Mapped[int]
    """Requests in all: items times repeats."""
    scores: Mapped[dict[str, Any] | None] = mapped_column(Figures)
    """By metric; see `evals.tally`."""
    prompt_tokens: Mapped[int] = mapped_column(BigInteger)
    completion_tokens: Mapped[int] = mapped_column(BigInteger)
    confirms: Mapped[str | None] = mapped_column(ForeignKey("eval_runs.id"))
    rescores: Mapped[str | None] = mapped_column(String(64))
    """The run whose answers it has scored again, without asking anew."""
    answered_at: Mapped[datetime | None]
    """When that run was created; None of a run that asks for itself."""
    verdict: Mapped[dict[str, Any] | None] = mapped_column(Figures)
    word: Mapped[str | None] = mapped_column(String(16))
    """The verdict in a word."""
    created_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]


class EvalAnswer(Base):
    """One answer of a run: sample `sample` of the item at place `number` of the dataset."""

    __tablename__ = "eval_answers"

    run_id: Mapped[str] = mapped_column(ForeignKey("eval_runs.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    sample: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str] = mapped_column(UserText)
    cluster: Mapped[str] = mapped_column(UserText)
    tags: Mapped[list[str]]
    finish_reason: Mapped[str | None] = mapped_column(UserWord(32))
    item_digest: Mapped[str] = mapped_column(String(64))
    prompt_digest: Mapped[str] = mapped_column(String(64))
    byte_start: Mapped[int] = mapped_column(BigInteger)
    """Where its record lies in the object `answers_key`."""
    byte_end: Mapped[int] = mapped_column(BigInteger)


class EvalScore(Base):
    """One metric of one answer: a score, or why there is none."""

    __tablename__ = "eval_scores"

    run_id: Mapped[str] = mapped_column(ForeignKey("eval_runs.id"), primary_key=True)
    metric: Mapped[str] = mapped_column(UserWord(160), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    sample: Mapped[int] = mapped_column(primary_key=True)
    score: Mapped[float | None] = mapped_column(Double)
    missing: Mapped[Missing | None] = mapped_column(column_of(Missing))


class EvalPin(Base):
    """A run as part of a suite's baseline, from a person's word until another's."""

    __tablename__ = "eval_pins"
    __table_args__ = (Index(None, "suite", "unpinned_at"),)

    id: Mapped[int] = mapped_column(RowId, primary_key=True, autoincrement=True)
    suite: Mapped[str] = mapped_column(UserWord(64))
    run_id: Mapped[str] = mapped_column(ForeignKey("eval_runs.id"))
    pinned_at: Mapped[datetime]
    unpinned_at: Mapped[datetime | None]
