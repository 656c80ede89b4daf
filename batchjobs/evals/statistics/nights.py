"""The tests of `comparison` for thousands of simulated nights at once, a night a row.

The normal approximation to both tests first; of scores of 0 and 1, nights that it leaves in doubt
get the exact p-values. Of other scores it is good from some fifty items on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from batchjobs.evals.statistics.arrays import Floats, Integers
from batchjobs.evals.statistics.randomisation import Law, hypergeometric, tails_of

SURELY_BELOW = 1e-6
SURELY_ABOVE = 0.2
"""p-values between which the approximation decides nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Answers of N nights, or of one for all: `sums` and `squares` of each item's scores [N, n],
    and how many answers an item has."""

    sums: Floats
    squares: Floats
    answers: int

    def of_nights(self, rows: Integers) -> Side:
        """One that is for all nights stays so."""
        if len(self.sums) == 1:
            return self
        return Side(sums=self.sums[rows], squares=self.squares[rows], answers=self.answers)

    def of_items(self, columns: Integers) -> Side:
        return Side(
            sums=self.sums[:, columns], squares=self.squares[:, columns], answers=self.answers
        )


def p_worse(new: Side, old: Side, clusters: Integers, *, is_binary: bool) -> Floats:
    """One-sided p-values [N]; `clusters` [n] numbers the items' clusters."""
    p = np.maximum(_exchange_normal(new, old), _sign_flip_normal(new, old, clusters))
    if is_binary:
        doubtful = np.flatnonzero((p > SURELY_BELOW) & (p < SURELY_ABOVE))
        new, old = new.of_nights(doubtful), old.of_nights(doubtful)
        p[doubtful] = np.maximum(_exchange(new, old), _sign_flip(new, old, clusters))
    return p


def effects(new: Side, old: Side) -> Floats:
    """Differences of mean scores [N]."""
    differences: Floats = (new.sums / new.answers - old.sums / old.answers).mean(axis=1)
    return differences


def _sign_flip(new: Side, old: Side, clusters: Integers) -> Floats:
    steps = _by_cluster(_steps(new, old), clusters)
    sizes = np.abs(steps)
    found = [int(size) for size in np.unique(sizes) if size]
    laws = [Law((-size, size), (0.5, 0.5)) for size in found]
    counts = [(sizes == size).sum(axis=1) for size in found]
    return _lower(laws, counts, steps.sum(axis=1))


def _exchange(new: Side, old: Side) -> Floats:
    size = new.answers + old.answers
    right = _whole(new.sums + old.sums)
    laws = [_law(each, taken=new.answers, size=size) for each in range(1, size)]
    counts = [(right == each).sum(axis=1) for each in range(1, size)]
    # Items that have the same answers everywhere stay as they are, and count for nothing.
    return _lower(laws, counts, _steps(new, old).sum(axis=1))


def _law(right: int, *, taken: int, size: int) -> Law:
    chances = hypergeometric(right=right, size=size, taken=taken)
    # One right answer more tonight is one less in the baseline.
    values = tuple(chosen * size - right * taken for chosen in chances)
    return Law(values, tuple(chances.values()))


def _lower(laws: list[Law], counts: list[Integers], observed: Integers) -> Floats:
    if not laws:
        return np.ones(len(observed))
    return tails_of(laws, np.stack(counts, axis=1), observed)[0]


def _steps(new: Side, old: Side) -> Integers:
    """Differences of means × both numbers of answers."""
    return _whole(new.sums * old.answers - old.sums * new.answers)


def _exchange_normal(new: Side, old: Side) -> Floats:
    size = new.answers + old.answers
    means = (new.sums + old.sums) / size
    spread = (new.squares + old.squares) / size - means**2
    # The finite population's variance of a mean, on the scale of the difference of both means.
    factor = size**2 / (new.answers * old.answers * (size - 1))
    variance = np.maximum(spread, 0).sum(axis=1) * factor
    return _normal(effects(new, old) * means.shape[1], variance)


def _sign_flip_normal(new: Side, old: Side, clusters: Integers) -> Floats:
    differences = _by_cluster(new.sums / new.answers - old.sums / old.answers, clusters)
    return _normal(differences.sum(axis=1), (differences**2).sum(axis=1))


def _normal(total: Floats, variance: Floats) -> Floats:
    deviation = np.sqrt(variance)
    score = np.divide(total, deviation, out=np.zeros_like(total), where=deviation > 1e-12)
    tail: Floats = np.where(deviation > 1e-12, ndtr(score), 1.0)
    return tail


def _by_cluster(values: Floats | Integers, clusters: Integers) -> Floats | Integers:
    """Columns of one cluster summed up."""
    order = np.argsort(clusters, kind="stable")
    starts = np.flatnonzero(np.diff(clusters[order], prepend=-1))
    if len(starts) == len(clusters):
        return values
    return np.add.reduceat(values[:, order], starts, axis=1)


def _whole(values: Floats) -> Integers:
    return np.rint(values).astype(np.int64)
