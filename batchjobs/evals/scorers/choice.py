"""The likeliest of several continuations is the right one, by their log-probabilities.

As lm-evaluation-harness counts them: `acc` takes the greatest sum of log-probabilities, `acc_norm`
the greatest a character, `acc_bytes` the greatest a byte of UTF-8, both without what stands between
prompt and choice; of equals the first. `margin` is the gold choice's sum less the best other's:
continuous, it moves long before a choice flips.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from batchjobs.errors import InvalidFileError
from batchjobs.evals.answers import Answer
from batchjobs.evals.outcomes import Missing
from batchjobs.evals.scorers.base import BaseScorer, Expression, Mark, Marks
from batchjobs.evals.templates import Fields, TemplateError, evaluate

CHOICES = "_choices"
"""Under this name the choices of an item's request stand beside its fields."""


class Choice(BaseScorer):
    type: Literal["choice"]
    gold: Expression
    """The right choice: its index from 0, its text, or a letter `A`, `B`, …"""

    @property
    def metrics(self) -> tuple[str, ...]:
        behind = "" if self.name is None else f"{self.name}."
        return tuple(f"{behind}{metric}" for metric in ("acc", "acc_norm", "acc_bytes", "margin"))

    def score(self, fields: Fields, answer: Answer) -> Marks:
        if answer.error is not None:
            return dict.fromkeys(self.metrics, Mark(missing=Missing.REQUEST_FAILED))
        choices = choice_texts(fields)
        sums = answer.likelihoods
        if len(sums) != len(choices):
            raise InvalidFileError(
                f"An answer has log-probabilities of {len(sums)} choices where {len(choices)} were"
                " asked about: whoever answers must echo prompts with `logprobs`."
            )
        gold = self._gold(fields, choices)
        by_character = [value / len(text) for value, text in zip(sums, choices, strict=True)]
        by_byte = [value / len(text.encode()) for value, text in zip(sums, choices, strict=True)]
        others = [value for index, value in enumerate(sums) if index != gold]
        picked = [_greatest(values) for values in (sums, by_character, by_byte)]
        marks = [Mark(score=float(one == gold), extracted=choices[one]) for one in picked]
        margin = Mark(
            score=sums[gold] - max(others),
            extracted=", ".join(f"{value:.4f}" for value in sums),
        )
        return dict(zip(self.metrics, [*marks, margin], strict=True))

    def check(self, fields: Fields) -> None:
        self._gold(fields, choice_texts(fields))

    def _gold(self, fields: Fields, choices: Sequence[str]) -> int:
        value = evaluate(self.gold, fields)
        index = _index(value, choices)
        if index is None:
            raise TemplateError(
                f"`gold` is {value!r}, which is neither an index nor one of the choices"
                f" {list(choices)!r}"
            )
        return index


def choice_texts(fields: Fields) -> list[str]:
    """Those that the request asked about. Raises TemplateError."""
    if CHOICES not in fields:
        raise TemplateError("the scorer `choice` needs `choices` in `request`")
    return list(fields[CHOICES])


def _index(value: object, choices: Sequence[str]) -> int | None:
    texts = [text.strip() for text in choices]
    if isinstance(value, int) and not isinstance(value, bool):
        return value if 0 <= value < len(texts) else None
    word = str(value).strip()
    if word in texts:
        return texts.index(word)
    if word.isdecimal() and int(word) < len(texts):
        return int(word)
    letter = ord(word) - ord("A") if len(word) == 1 else -1
    return letter if 0 <= letter < len(texts) else None


def _greatest(values: Sequence[float]) -> int:
    return max(range(len(values)), key=values.__getitem__)
