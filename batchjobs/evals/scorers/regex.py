"""What a regular expression finds in the answer is the target, after both were cleaned alike.

With `which: last` and `ignore`, it is what lm-evaluation-harness does by its filter `regex` and its
metric `exact_match`: of a match's groups the first that is not empty counts.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator

from batchjobs.evals.answers import Answer
from batchjobs.evals.scorers.base import Mark, Template, TextScorer, unparsed, verdict_of
from batchjobs.evals.templates import Fields, render


def _check_pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as wrong:
        raise ValueError(f"the regular expression cannot be read: {wrong}") from None
    return text


Pattern = Annotated[str, AfterValidator(_check_pattern)]


class Regex(TextScorer):
    type: Literal["regex"]
    pattern: Pattern
    target: Template
    which: Literal["first", "last"] = "first"
    ignore: tuple[Pattern, ...] = ()
    """What is taken out of answer and target before they are compared."""
    ignore_case: bool = False

    def mark(self, fields: Fields, answer: Answer) -> Mark:
        found = self._find(answer.text)
        if found is None:
            return unparsed(answer)
        target = render(self.target, fields).strip()
        return verdict_of(self._clean(found) == self._clean(target), found)

    def _find(self, text: str) -> str | None:
        matches = list(re.finditer(self.pattern, text))
        if not matches:
            return None
        match = matches[0 if self.which == "first" else -1]
        if not match.re.groups:
            return match[0].strip()
        return next((group.strip() for group in match.groups() if group), "")

    def _clean(self, text: str) -> str:
        for pattern in self.ignore:
            text = re.sub(pattern, "", text)
        return text.lower() if self.ignore_case else text
