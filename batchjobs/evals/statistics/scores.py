"""The score of runs by themselves: what a trend shows, and what a floor is held against."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from batchjobs.evals.outcomes import ScoredRun
from batchjobs.evals.statistics.intervals import Interval, student, wilson
from batchjobs.evals.statistics.pairs import clustered_error, outcomes, scores


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Mean over items, each the mean of its answers."""

    mean: float
    interval: Interval
    """Wilson's where every item has one 0/1 answer and none shares a cluster; else by t."""
    scored: int
    """Items with a score, of `items`."""
    items: int


def score(
    runs: Sequence[ScoredRun], *, tag: str | None = None, confidence: float = 0.95
) -> Score | None:
    """Of the items with this tag, or all; None where no item has a score."""
    chosen = {
        outcome.item: outcome.cluster
        for outcome in outcomes(runs)
        if tag is None or tag in outcome.tags
    }
    answers = {item: given for item, given in scores(runs).items() if item in chosen}
    if not answers:
        return None
    means = [math.fsum(given) / len(given) for given in answers.values()]
    clusters = [chosen[item] for item in answers]
    mean = math.fsum(means) / len(means)
    are_single = all(given in ((0.0,), (1.0,)) for given in answers.values())
    if are_single and len(set(clusters)) == len(clusters):
        interval = wilson(math.fsum(means), len(means), confidence)
    else:
        error = clustered_error(means, clusters)
        interval = student(mean, error, len(set(clusters)), confidence)
    return Score(mean=mean, interval=interval, scored=len(means), items=len(chosen))
