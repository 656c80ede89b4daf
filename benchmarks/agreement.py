"""How far two engines' answers to the same requests are the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

Answers = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """`answers` that are equal token for token; `tokens` before the first that differs, summed
    over all answers; `of_tokens` is the sum of the longer answer's length of each pair.

    Greedy answers in 16 bits part by rounding at some token, behind which nothing is comparable.
    """

    answers: int
    tokens: int
    of_tokens: int

    @property
    def share(self) -> float:
        """Of the tokens, 1 for no tokens at all."""
        return self.tokens / self.of_tokens if self.of_tokens else 1.0


def agreement(ours: Answers, theirs: Answers) -> Agreement:
    """Raises ValueError when one has more answers."""
    pairs = list(zip(ours, theirs, strict=True))
    return Agreement(
        answers=sum(list(a) == list(b) for a, b in pairs),
        tokens=sum(_common(a, b) for a, b in pairs),
        of_tokens=sum(max(len(a), len(b)) for a, b in pairs),
    )


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest common beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
