"""Another model grades the answer: a second job, with a template of its own.

Raw verdicts are kept. A judge that does not answer, or not with one of the grades, has failed: that
is no score, least of all the lowest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from batchjobs.evals.answers import Answer
from batchjobs.evals.outcomes import Missing
from batchjobs.evals.scorers.base import BaseScorer, Mark, Marks, Template
from batchjobs.evals.scorers.regex import Pattern
from batchjobs.evals.templates import Fields, render

ANSWER = "answer_text"
"""Under this name the judge's template gets the answer, beside the item's fields."""


class Judge(BaseScorer):
    """`pattern` finds the grade in what the judge says, and `grades` gives it its score."""

    type: Literal["judge"]
    model: str | None = None
    """By default the model that is judged."""
    system: Template | None = None
    prompt: Template
    pattern: Pattern = r"(?i)\bgrade\b\W*(\w+)"
    which: Literal["first", "last"] = "last"
    grades: Mapping[str, float] = Field(
        default={"C": 1.0, "CORRECT": 1.0, "P": 0.5, "I": 0.0, "INCORRECT": 0.0}, min_length=1
    )
    max_tokens: int = Field(default=512, ge=1)
    temperature: float = Field(default=0.0, ge=0)
    seed: int = 0

    def body(self, fields: Fields, answer: Answer, model: str) -> dict[str, Any]:
        """The request that asks the judge. Raises TemplateError."""
        known = {**fields, ANSWER: answer.text}
        messages = [{"role": "user", "content": render(self.prompt, known)}]
        if self.system is not None:
            messages.insert(0, {"role": "system", "content": render(self.system, known)})
        return {
            "model": self.model or model,
            "messages": messages,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "seed": self.seed,
        }

    def asking(self) -> dict[str, Any]:
        """What its words depend on besides item and answer; how they are read is no part of it."""
        return self.model_dump(mode="json", exclude={"name", "pattern", "which", "grades"})

    def check(self, fields: Fields) -> None:
        self.body(fields, Answer(text="an answer"), "")

    def score(self, fields: Fields, answer: Answer) -> Marks:
        """Of an answer that no judge was asked about."""
        [metric] = self.metrics
        return {metric: Mark(missing=answer.missing or Missing.JUDGE_FAILED)}

    def grade(self, answer: Answer, judgement: Answer) -> Marks:
        """By what the judge said."""
        [metric] = self.metrics
        if answer.missing is not None:
            return {metric: Mark(missing=answer.missing)}
        matches = list(re.finditer(self.pattern, judgement.text))
        if judgement.missing is not None or not matches:
            return {metric: Mark(missing=Missing.JUDGE_FAILED, extracted=judgement.text or None)}
        match = matches[0 if self.which == "first" else -1]
        word = match[1] if match.re.groups else match[0]
        grades = {name.casefold(): score for name, score in self.grades.items()}
        score = grades.get((word or "").strip().casefold())
        if score is None:
            return {metric: Mark(missing=Missing.JUDGE_FAILED, extracted=judgement.text)}
        return {metric: Mark(score=score, extracted=word)}
