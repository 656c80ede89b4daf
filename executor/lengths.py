"""How long answers will be, learned from those of the run that have ended."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque

from executor.request import SamplingParams

QUANTILE = 0.6
"""Of the lengths seen, to begin with: two answers in five are longer than expected."""
MAX_QUANTILE = 0.98
EASING = 0.001
"""How much the quantile falls with every answer that ends, after a preemption has raised it."""
ENOUGH, REMEMBERED = 64, 512
"""Answers to learn from."""


class _Lengths:
    """The last lengths seen, sorted."""

    def __init__(self) -> None:
        self._recent: deque[int] = deque()
        self._ranked: list[int] = []

    def add(self, length: int) -> None:
        if len(self._recent) == REMEMBERED:
            del self._ranked[bisect_right(self._ranked, self._recent.popleft()) - 1]
        self._recent.append(length)
        insort(self._ranked, length)

    def expect(self, generated: int, quantile: float) -> int | None:
        """The quantile of those longer than `generated`; None when too few are known."""
        shorter = bisect_right(self._ranked, generated)
        if len(self._ranked) < ENOUGH or shorter == len(self._ranked):
            return None
        return self._ranked[shorter + int(quantile * (len(self._ranked) - shorter))]


class LengthModel:
    """Keeps requests of about the same `max_tokens` (to a power of two) together, as S³ does
    with predicted lengths (Jin et al., NeurIPS'23); without a predictor's cost or errors.

    The first to end are the short ones: until `ENOUGH` have, and where none was longer, an answer
    is taken for `unknown` tokens long, or for twice what it has. A preemption shows that too
    little was expected, and raises the quantile by a quarter of what is left to one.
    """

    def __init__(self, unknown: int) -> None:
        self._unknown = unknown
        self._quantile = QUANTILE
        self._seen: dict[int, _Lengths] = {}

    def observe(self, params: SamplingParams, generated: int) -> None:
        """An answer to such a request has ended by itself after so many tokens."""
        self._quantile = max(QUANTILE, self._quantile - EASING)
        self._seen.setdefault(params.max_tokens.bit_length(), _Lengths()).add(generated)

    def expect_more(self) -> None:
        """Somebody was preempted."""
        self._quantile = min(MAX_QUANTILE, self._quantile + (1 - self._quantile) / 4)

    def expect(self, params: SamplingParams, generated: int = 0) -> int:
        """Tokens that the answer will have, given that it has `generated` and goes on."""
        if is_exact(params):
            return params.max_tokens
        seen = self._seen.get(params.max_tokens.bit_length())
        expected = seen.expect(generated, self._quantile) if seen is not None else None
        if expected is None:
            expected = max(self._unknown, 2 * generated)
        return max(params.min_tokens, min(params.max_tokens, expected))


def is_exact(params: SamplingParams) -> bool:
    """Whether nothing but `max_tokens` can end the answer."""
    stops = not params.ignore_eos or params.stop or params.stop_token_ids
    return not stops or params.min_tokens == params.max_tokens
