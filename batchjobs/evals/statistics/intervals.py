"""Confidence intervals: of one score, and of the difference of two on the same items.

Every function takes the level as `confidence` (0.95 by default) and gives both limits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri, stdtrit

from batchjobs.evals.statistics.arrays import Floats, Integers

BOOTSTRAP_DRAWS = 10_000
_DRAWS_AT_A_TIME = 1_000


@dataclass(frozen=True, slots=True)
class Interval:
    low: float
    high: float


def normal_quantile(share: float) -> float:
    """1.959964 of 0.975."""
    return float(ndtri(share))


def wilson(right: float, n: int, confidence: float = 0.95) -> Interval:
    """Of a share of `n` answers, one an item (Wilson 1927)."""
    z = normal_quantile((1 + confidence) / 2)
    share = right / n
    shrink = 1 + z * z / n
    centre = (share + z * z / (2 * n)) / shrink
    half = z / shrink * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return Interval(max(0.0, centre - half), min(1.0, centre + half))


def newcombe(fixed: int, broken: int, right: int, wrong: int, confidence: float = 0.95) -> Interval:
    """Of the difference new − old of two shares on the same items, of which `right` and `wrong`
    are so in both (Newcombe 1998, method 10). Keeps its level where Wald's is too narrow."""
    n = fixed + broken + right + wrong
    new, old = (right + fixed) / n, (right + broken) / n
    of_new, of_old = wilson(right + fixed, n, confidence), wilson(right + broken, n, confidence)
    together = _correlation(fixed, broken, right, wrong)

    def reach(down: float, up: float) -> float:
        return math.sqrt(max(0.0, down * down - 2 * together * down * up + up * up))

    difference = new - old
    return Interval(
        difference - reach(new - of_new.low, of_old.high - old),
        difference + reach(of_new.high - new, old - of_old.low),
    )


def _correlation(fixed: int, broken: int, right: int, wrong: int) -> float:
    """φ of the two answers, with Newcombe's correction for continuity when it is positive."""
    n = fixed + broken + right + wrong
    margins = (right + broken) * (wrong + fixed) * (right + fixed) * (wrong + broken)
    if margins == 0:
        return 0.0
    cross: float = right * wrong - fixed * broken
    if cross > 0:
        cross = max(cross - n / 2, 0)
    return cross / math.sqrt(margins)


def student(mean: float, error: float, clusters: int, confidence: float = 0.95) -> Interval:
    """Of a mean with its standard error, by t with `clusters` − 1 degrees of freedom; without two
    clusters, everything is possible."""
    if clusters < 2:
        return Interval(-math.inf, math.inf)
    half = float(stdtrit(clusters - 1, (1 + confidence) / 2)) * error
    return Interval(mean - half, mean + half)


def bootstrap(
    sums: Floats, sizes: Floats, confidence: float = 0.95, *, draws: int = BOOTSTRAP_DRAWS
) -> Interval:
    """Of a mean over clusters with these sums and sizes, by drawing whole clusters again
    (percentiles; the same seed every time)."""
    random = np.random.default_rng(12345)
    means = np.concatenate(
        [
            _means(random.integers(len(sums), size=(count, len(sums))), sums, sizes)
            for count in _portions(draws)
        ]
    )
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(low), float(high))


def _means(drawn: Integers, sums: Floats, sizes: Floats) -> Floats:
    means: Floats = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    return means


def _portions(draws: int) -> list[int]:
    whole, rest = divmod(draws, _DRAWS_AT_A_TIME)
    return [_DRAWS_AT_A_TIME] * whole + [rest] * (rest > 0)
