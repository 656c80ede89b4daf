"""Tonight's answers beside the baseline's, on the same items: how far apart, and how surely."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from batchjobs.evals.statistics import mcnemar
from batchjobs.evals.statistics.intervals import Interval, bootstrap, newcombe, student
from batchjobs.evals.statistics.pairs import Pair, cluster_sums, clustered_error
from batchjobs.evals.statistics.power import fewest_flips, smallest_drop
from batchjobs.evals.statistics.randomisation import Tails, exchange, sign_flip

MCNEMAR = "exact McNemar"
RANDOMISATION = "randomisation"
MIN_BOOTSTRAP_CLUSTERS = 50
"""Of fewer, a bootstrap's interval is too narrow."""
HALF = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Of a suite, or of its items with one tag. Scores are means over items."""

    tag: str | None
    items: int
    clusters: int
    score: float
    baseline: float
    effect: float
    """`score` − `baseline`."""
    interval: Interval
    """95 %, of the effect."""
    error: float
    """Standard error of the effect, by clusters."""
    p_worse: float
    """One-sided."""
    p_better: float
    adjusted_worse: float
    """`p_worse` by Holm over everything that was judged together."""
    broken: int
    """Items that were right in most answers and are not any more; for scores that are not 0/1,
    items with a lower one."""
    fixed: int
    smallest_drop: float
    """What would have been found with a probability of 80 %."""
    method: str

    @property
    def p_either(self) -> float:
        """Two-sided."""
        return min(1.0, 2 * min(self.p_worse, self.p_better))


def compare(pairs: Sequence[Pair], *, alpha: float, tag: str | None = None) -> Comparison:
    """Of at least one pair. `alpha` is what the test has of the night's level."""
    differences = [each.difference for each in pairs]
    clusters = [each.cluster for each in pairs]
    effect = math.fsum(differences) / len(pairs)
    error = clustered_error(differences, clusters)
    tails = worse_and_better(pairs)
    fixed, broken = _flips(pairs)
    return Comparison(
        tag=tag,
        items=len(pairs),
        clusters=len(set(clusters)),
        score=math.fsum(each.new_mean for each in pairs) / len(pairs),
        baseline=math.fsum(each.old_mean for each in pairs) / len(pairs),
        effect=effect,
        interval=_interval(pairs, effect, error),
        error=error,
        p_worse=tails.lower,
        p_better=tails.upper,
        adjusted_worse=tails.lower,
        broken=broken,
        fixed=fixed,
        smallest_drop=_smallest_drop(pairs, error, alpha),
        method=MCNEMAR if _is_mcnemar(pairs) else RANDOMISATION,
    )


def worse_and_better(pairs: Sequence[Pair]) -> Tails:
    """One-sided p-values: of a change as low, and as high.

    | answers | test |
    |---|---|
    | one 0/1 answer a side, items independent | exact McNemar |
    | any other | the greater p of exchange and sign flip, whose module says why |
    """
    if _is_mcnemar(pairs):
        fixed, broken = _flips(pairs)
        return Tails(lower=mcnemar.worse(fixed, broken), upper=mcnemar.worse(broken, fixed))
    sums, _ = cluster_sums([each.difference for each in pairs], [each.cluster for each in pairs])
    flipped = sign_flip(sums)
    exchanged = exchange([(each.new, each.old) for each in pairs])
    return Tails(
        lower=max(flipped.lower, exchanged.lower), upper=max(flipped.upper, exchanged.upper)
    )


def _is_mcnemar(pairs: Sequence[Pair]) -> bool:
    return _are_independent(pairs) and all(each.is_single and each.is_binary for each in pairs)


def _are_independent(pairs: Sequence[Pair]) -> bool:
    return len({each.cluster for each in pairs}) == len(pairs)


def _flips(pairs: Sequence[Pair]) -> tuple[int, int]:
    """How many are fixed, and how many broken."""
    are_binary = all(each.is_binary for each in pairs)
    ways = [direction(each, is_binary=are_binary) for each in pairs]
    return ways.count(1), ways.count(-1)


def direction(pair: Pair, *, is_binary: bool) -> int:
    """1 of an item that is fixed, −1 of a broken one, else 0."""
    if not is_binary:
        return (pair.difference > 1e-9) - (pair.difference < -1e-9)
    new, old = _side(pair.new_mean), _side(pair.old_mean)
    return new if new == -old else 0


def _side(mean: float) -> int:
    return (mean > HALF) - (mean < HALF)


def _interval(pairs: Sequence[Pair], effect: float, error: float) -> Interval:
    if _is_mcnemar(pairs):
        fixed, broken = _flips(pairs)
        right = sum(each.new == each.old == (1.0,) for each in pairs)
        return newcombe(fixed, broken, right, len(pairs) - fixed - broken - right)
    sums, sizes = cluster_sums(
        [each.difference for each in pairs], [each.cluster for each in pairs]
    )
    if len(sums) >= MIN_BOOTSTRAP_CLUSTERS and not all(each.is_binary for each in pairs):
        return bootstrap(sums, sizes)
    return student(effect, error, len(sums))


def _smallest_drop(pairs: Sequence[Pair], error: float, alpha: float) -> float:
    """No less than the fewest items that can convince, each by a whole point. Scores that are not
    0/1 may drop by less, but where none did, nothing tells by how much."""
    least = fewest_flips(alpha) / len(pairs)
    if math.isnan(error):
        return math.inf
    if all(each.is_binary for each in pairs):
        return max(smallest_drop(error, alpha=alpha), least)
    return smallest_drop(error, alpha=alpha) if error > 0 else least * _spread(pairs)


def _spread(pairs: Sequence[Pair]) -> float:
    scores = [score for each in pairs for score in (*each.new, *each.old)]
    return max(1.0, max(scores) - min(scores))
