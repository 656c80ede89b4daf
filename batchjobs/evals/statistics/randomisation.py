"""Randomisation tests whose p-values are computed, not drawn: the law of a sum of independent
lattice variables, by Fourier transform (as the FFT method for Poisson-binomial laws, Hong 2013).

Both tests ask how often the difference would be as low as it is, if

| test | what is made at random | keeps its level for |
|---|---|---|
| exchange | which of an item's answers are tonight's | a night with nothing changed |
| sign flip | the sign of each cluster's difference | a model with other answers, no worse |

With one answer a side, they are the same test, and for 0/1 scores both are McNemar's. With a
baseline of several runs neither does alone: the sign flip takes the differences for symmetric,
which those from a mean are not (measured: 2.7 % alarms at a nominal 1 % where 5 % of answers are
right), and the exchange takes for noise only what differs between runs of the baseline.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from batchjobs.evals.statistics.arrays import Complexes, Floats, Integers

MAX_DENOMINATOR = 1_000
MAX_SPAN = 1 << 15
"""Points of the lattice that a sum may reach over; scores that need more are rounded."""
MAX_SUBSETS = 256
"""So many ways to choose tonight's answers of an item are told one by one; of more, so many are
drawn."""
_CELLS = 1 << 21
"""Sums, or laws, × points of the lattice in memory at once."""


@dataclass(frozen=True, slots=True)
class Law:
    """Of one lattice variable: distinct values, ascending, and their probabilities."""

    values: tuple[int, ...]
    shares: tuple[float, ...]

    @property
    def width(self) -> int:
        return self.values[-1] - self.values[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tails:
    """How likely a sum is that is as low as the observed one, and one as high."""

    lower: float
    upper: float


def tails_of(laws: Sequence[Law], counts: Integers, observed: Integers) -> tuple[Floats, Floats]:
    """P(sum ≤ observed) and P(sum ≥ observed) of N sums.

    The n-th is of `counts[n, k]` independent variables of each law k; counts [N, K], observed [N].
    """
    lows = np.array([law.values[0] for law in laws], dtype=np.int64)
    widths = np.array([law.width for law in laws], dtype=np.int64)
    place = observed - counts @ lows
    size = 1 << int((counts @ widths).max(initial=1) + 1).bit_length()
    lower, upper = np.empty(len(observed)), np.empty(len(observed))
    for part in _parts(len(observed), size):
        mass = np.fft.irfft(_spectra(laws, counts[part], size), size, axis=1)
        below = np.cumsum(mass, axis=1)
        rows, at = np.arange(len(mass)), place[part]
        lower[part] = below[rows, at]
        upper[part] = 1 - below[rows, at] + mass[rows, at]
    return np.clip(lower, 0, 1), np.clip(upper, 0, 1)


def sign_flip(sums: Floats) -> Tails:
    """Of the sum of clusters' differences, when each may as well have had the other sign."""
    scale = lattice(sums)
    steps = np.rint(sums * scale).astype(np.int64)
    sizes = Counter(np.abs(steps[steps != 0]).tolist())
    laws = [Law((-size, size), (0.5, 0.5)) for size in sizes]
    return _tails(laws, list(sizes.values()), int(steps.sum()))


def exchange(items: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Tails:
    """Of the sum of items' differences of means, (tonight's, the baseline's) answers each, when any
    of an item's answers may as well have been tonight's."""
    drawn = [_differences(tuple(sorted(new)), tuple(sorted(old))) for new, old in items]
    observed = [_mean(new) - _mean(old) for new, old in items]
    every = np.array([value for law in drawn for value in law] + observed)
    scale = lattice(every, reach=sum(max(map(abs, law)) for law in drawn))
    laws: Counter[Law] = Counter()
    for law in drawn:
        steps: Counter[int] = Counter()
        for value, share in law.items():
            steps[round(value * scale)] += share  # type: ignore[assignment]
        values = tuple(sorted(steps))
        laws[Law(values, tuple(steps[value] for value in values))] += 1
    total = sum(round(value * scale) for value in observed)
    return _tails(list(laws), list(laws.values()), total)


def lattice(values: Floats, *, reach: float | None = None) -> int:
    """The least denominator of all values, or one to round them to if that is too great."""
    reach = float(np.abs(values).sum()) if reach is None else reach
    most = max(1, int(MAX_SPAN / max(2 * reach, 1)))
    distinct = np.unique(np.abs(values))
    if len(distinct) <= MAX_DENOMINATOR:
        for scale in range(1, min(MAX_DENOMINATOR, most) + 1):
            steps = distinct * scale
            if np.abs(steps - np.rint(steps)).max(initial=0) < 1e-7:
                return scale
    return most


def _tails(laws: list[Law], counts: list[int], observed: int) -> Tails:
    if not laws:
        return Tails(lower=1.0, upper=1.0)
    lower, upper = tails_of(laws, np.array([counts]), np.array([observed]))
    return Tails(lower=float(lower[0]), upper=float(upper[0]))


def _spectra(laws: Sequence[Law], counts: Integers, size: int) -> Complexes:
    """The transforms of sums of laws that are moved to begin at 0."""
    logs = np.zeros((len(counts), size // 2 + 1), dtype=np.complex128)
    for part in _parts(len(laws), size):
        masses = np.zeros((len(laws[part]), size))
        for mass, law in zip(masses, laws[part], strict=True):
            mass[np.array(law.values) - law.values[0]] = law.shares
        spectra = np.fft.rfft(masses, axis=1)
        # A zero has no logarithm.
        logs += counts[:, part] @ np.log(np.where(np.abs(spectra) < 1e-300, 1e-300, spectra))
    return np.exp(logs)


def _parts(count: int, size: int) -> Iterator[slice]:
    step = max(1, _CELLS // size)
    return (slice(start, start + step) for start in range(0, count, step))


def _differences(new: tuple[float, ...], old: tuple[float, ...]) -> dict[float, float]:
    """Difference of means → how likely it is, if tonight's answers are any of all."""
    pool, taken = (*new, *old), len(new)
    if len(set(pool)) == 1:
        return {0.0: 1.0}
    total, size = math.fsum(pool), len(pool)

    def difference(chosen: float) -> float:
        return chosen / taken - (total - chosen) / (size - taken)

    if set(pool) <= {0.0, 1.0}:
        chances = hypergeometric(right=int(total), size=size, taken=taken)
        return {difference(chosen): chance for chosen, chance in chances.items()}
    sums = [math.fsum(subset) for subset in _subsets(pool, taken)]
    shares: Counter[float] = Counter(difference(chosen) for chosen in sums)
    return {value: count / len(sums) for value, count in shares.items()}


def hypergeometric(*, right: int, size: int, taken: int) -> dict[int, float]:
    """How many of `taken` answers are right, if `right` of all `size` are → how likely."""
    ways = math.comb(size, taken)
    fewest, most = max(0, right - size + taken), min(taken, right)
    return {
        chosen: math.comb(right, chosen) * math.comb(size - right, taken - chosen) / ways
        for chosen in range(fewest, most + 1)
    }


def _subsets(pool: tuple[float, ...], taken: int) -> list[tuple[float, ...]]:
    if math.comb(len(pool), taken) <= MAX_SUBSETS:
        return list(itertools.combinations(pool, taken))
    random = np.random.default_rng(12345)
    drawn = [tuple(random.choice(pool, taken, replace=False)) for _ in range(MAX_SUBSETS - 1)]
    return [pool[:taken], *drawn]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
