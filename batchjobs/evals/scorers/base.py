"""What every scorer is: a part of the suite file that turns an answer into marks.

| an answer that | has |
|---|---|
| the scorer finds right, wrong or in between | a score |
| ran into its token limit before the scorer found anything in it | `truncated` |
| is without text | `empty` |
| is text in which the scorer finds no answer | `unparsed` |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from batchjobs.evals.answers import Answer
from batchjobs.evals.outcomes import Missing
from batchjobs.evals.templates import Fields, check_expression, check_template, render

Template = Annotated[str, AfterValidator(check_template)]
Expression = Annotated[str, AfterValidator(check_expression)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One metric of one answer. `extracted` is what was taken for the answer, for people."""

    score: float | None = None
    missing: Missing | None = None
    extracted: str | None = None


Marks = Mapping[str, Mark]
"""By metric."""


class Part(BaseModel):
    """A part of a suite file: keys that nobody knows are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class BaseScorer(Part):
    """`version` grows when the same answer would be scored otherwise than before."""

    version: ClassVar[int] = 1
    name: str | None = Field(default=None, min_length=1, max_length=64, pattern=r"^[\w.-]+$")
    """What its metric is called; by default as its type."""

    @property
    def kind(self) -> str:
        return str(self.type)  # type: ignore[attr-defined]  # every scorer has one, of its own

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of what `score` gives, the most telling first."""
        return (self.name or self.kind,)

    def score(self, fields: Fields, answer: Answer) -> Marks:
        """Marks for every metric. Raises TemplateError if the item does not fit."""
        raise NotImplementedError

    def check(self, fields: Fields) -> None:
        """Raises TemplateError if the first item does not fit."""
        for template in self.templates():
            render(template, fields)

    def templates(self) -> tuple[str, ...]:
        """Those that an item must fill."""
        target = getattr(self, "target", None)
        return () if target is None else (target,)

    def signature(self) -> dict[str, Any]:
        """What the marks depend on besides item and answer."""
        return {**self.model_dump(mode="json"), "version": self.version}


class TextScorer(BaseScorer):
    """One whose metric is of the answer's text."""

    def score(self, fields: Fields, answer: Answer) -> Marks:
        [metric] = self.metrics
        missing = answer.missing or (None if answer.text.strip() else Missing.EMPTY)
        if missing is not None:
            return {metric: Mark(missing=missing)}
        return {metric: self.mark(fields, answer)}

    def mark(self, fields: Fields, answer: Answer) -> Mark:
        """Of an answer that has text."""
        raise NotImplementedError


def unparsed(answer: Answer) -> Mark:
    """Of text in which there is no answer, maybe as it was cut off."""
    return Mark(missing=Missing.TRUNCATED if answer.is_truncated else Missing.UNPARSED)


def verdict_of(is_right: bool, extracted: str) -> Mark:
    return Mark(score=float(is_right), extracted=extracted)
