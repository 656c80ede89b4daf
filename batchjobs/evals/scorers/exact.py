"""The answer is the target, character by character, but for white space around it."""

from __future__ import annotations

from typing import Literal

from batchjobs.evals.answers import Answer
from batchjobs.evals.scorers.base import Mark, Template, TextScorer, verdict_of
from batchjobs.evals.templates import Fields, render


class Exact(TextScorer):
    type: Literal["exact"]
    target: Template

    def mark(self, fields: Fields, answer: Answer) -> Mark:
        given = answer.text.strip()
        return verdict_of(given == render(self.target, fields).strip(), given)
