"""Percentiles of any number of durations in bounded memory."""

from __future__ import annotations

import math
from collections import Counter

_GROWTH = 1.01
_LOG = math.log(_GROWTH)
_LEAST = 1e-6


class Histogram:
    """Counts positive values in bins a hundredth wide; percentiles are right to that."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self.total = 0

    def add(self, value: float) -> None:
        self._counts[round(math.log(max(value, _LEAST)) / _LOG)] += 1
        self.total += 1

    def percentile(self, q: float) -> float:
        """The value that a share `q` of all are not above (nearest rank); 0.0 of none."""
        rank = max(1, math.ceil(q * self.total))
        seen = 0
        for number in sorted(self._counts):
            seen += self._counts[number]
            if seen >= rank:
                return math.exp(number * _LOG)
        return 0.0
