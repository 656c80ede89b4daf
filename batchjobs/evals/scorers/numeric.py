"""A number in the answer is the target, within a tolerance.

Numbers are read as people write them: `1,234.50`, `$70,000`, `-3`, `1e-3`, `12%` (as 12). A digit
stands at both ends, so that neither a comma nor a full stop behind a number is part of it. They are
compared as decimals: `70000.00` is 70000.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Literal

from pydantic import Field

from batchjobs.evals.answers import Answer
from batchjobs.evals.scorers.base import Mark, Template, TextScorer, unparsed, verdict_of
from batchjobs.evals.templates import Fields, TemplateError, render

_NUMBER = re.compile(
    r"(?<![\w.])(?P<sign>[-+\u2212]?)[$€£]?(?P<digits>\d{1,3}(?:,\d{3})+(?!\d)|\d+)?"
    r"(?P<fraction>\.\d+)?(?P<power>[eE][-+]?\d{1,3}(?!\w))?"
)


class Numeric(TextScorer):
    type: Literal["numeric"]
    target: Template
    which: Literal["first", "last"] = "last"
    tolerance: Decimal = Field(default=Decimal(0), ge=0)
    """Absolute."""
    relative: Decimal = Field(default=Decimal(0), ge=0)
    """Of the target's size; the greater of the two counts."""

    def mark(self, fields: Fields, answer: Answer) -> Mark:
        found = numbers(answer.text)
        if not found:
            return unparsed(answer)
        number = found[0 if self.which == "first" else -1]
        target = self._target(fields)
        allowed = max(self.tolerance, abs(target) * self.relative)
        return verdict_of(abs(number - target) <= allowed, f"{number:f}")

    def check(self, fields: Fields) -> None:
        self._target(fields)

    def _target(self, fields: Fields) -> Decimal:
        text = render(self.target, fields)
        found = numbers(text)
        if len(found) != 1:
            raise TemplateError(f"the target {text!r} of the scorer is not one number")
        return found[0]


def numbers(text: str) -> list[Decimal]:
    """Every number in the text, in order."""
    found = []
    for match in _NUMBER.finditer(text):
        if match["digits"] is None and match["fraction"] is None:
            continue
        sign = "-" if match["sign"] in ("-", "\u2212") else ""
        digits = (match["digits"] or "0").replace(",", "")
        try:
            found.append(Decimal(f"{sign}{digits}{match['fraction'] or ''}{match['power'] or ''}"))
        except InvalidOperation:
            continue
    return found
