"""Two sets of runs, item by item: what was answered on both sides."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from batchjobs.evals.outcomes import ItemOutcome, ScoredRun
from batchjobs.evals.statistics.arrays import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One item's scores, all samples of all runs of a side."""

    item: str
    cluster: str
    tags: tuple[str, ...]
    new: tuple[float, ...]
    old: tuple[float, ...]

    @property
    def new_mean(self) -> float:
        return math.fsum(self.new) / len(self.new)

    @property
    def old_mean(self) -> float:
        return math.fsum(self.old) / len(self.old)

    @property
    def difference(self) -> float:
        return self.new_mean - self.old_mean

    @property
    def is_single(self) -> bool:
        return len(self.new) == len(self.old) == 1

    @property
    def is_binary(self) -> bool:
        return {*self.new, *self.old} <= {0.0, 1.0}


def pair(candidate: Sequence[ScoredRun], baseline: Sequence[ScoredRun]) -> tuple[Pair, ...]:
    """The items that have a score on both sides, in the candidate's order."""
    new, old = scores(candidate), scores(baseline)
    about = {outcome.item: outcome for run in candidate for outcome in run.outcomes}
    return tuple(
        Pair(
            item=item,
            cluster=about[item].cluster,
            tags=about[item].tags,
            new=answers,
            old=old[item],
        )
        for item, answers in new.items()
        if item in old
    )


def scores(runs: Iterable[ScoredRun]) -> dict[str, tuple[float, ...]]:
    """Item → its scores; an item without any is left out."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for outcome in outcomes(runs):
        if outcome.score is not None:
            found[outcome.item].append(outcome.score)
    return {item: tuple(answers) for item, answers in found.items()}


def outcomes(runs: Iterable[ScoredRun]) -> Iterable[ItemOutcome]:
    return (outcome for run in runs for outcome in run.outcomes)


def cluster_sums(values: Sequence[float], clusters: Sequence[str]) -> tuple[Floats, Floats]:
    """The sum of each cluster's values, and how many they are."""
    _, places = np.unique(np.array(clusters), return_inverse=True)
    sums = np.bincount(places, weights=values).astype(np.float64)
    return sums, np.bincount(places).astype(np.float64)


def clustered_error(values: Sequence[float], clusters: Sequence[str]) -> float:
    """Standard error of the mean of values that are not independent within a cluster; with each
    its own, it is the usual one. NaN of fewer than two clusters."""
    sums, sizes = cluster_sums(values, clusters)
    count = len(sums)
    if count < 2:
        return math.nan
    residues = sums - sizes * (math.fsum(values) / len(values))
    return math.sqrt(float(residues @ residues) * count / (count - 1)) / len(values)
