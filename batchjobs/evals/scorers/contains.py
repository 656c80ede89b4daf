"""The target, or every one of several, stands somewhere in the answer."""

from __future__ import annotations

from typing import Literal

from batchjobs.evals.answers import Answer
from batchjobs.evals.scorers.base import Mark, Template, TextScorer, verdict_of
from batchjobs.evals.templates import Fields, render


class Contains(TextScorer):
    type: Literal["contains"]
    target: Template | tuple[Template, ...]
    ignore_case: bool = True
    any: bool = False
    """One of several is enough."""

    def templates(self) -> tuple[str, ...]:
        return (self.target,) if isinstance(self.target, str) else self.target

    def mark(self, fields: Fields, answer: Answer) -> Mark:
        text = self._fold(answer.text)
        found = [self._fold(render(target, fields)) in text for target in self.templates()]
        return verdict_of(any(found) if self.any else all(found), answer.text.strip())

    def _fold(self, text: str) -> str:
        return text.casefold() if self.ignore_case else text
