"""How often a suite would alarm, with nothing changed and with a drop, by its own measured noise.

The pinned baseline stays as it is. What an item's answers will be is drawn from what its answers
in the baseline were: of 0/1 scores from the posterior of a beta-binomial law fitted to the suite,
so that five right answers of five are not taken for a promise; of others, from the item's own
scores, spread as wide as a new answer lies about a mean of so few. A drop breaks items at random,
and a broken item scores 0 that night, in both runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from batchjobs.errors import UsageError
from batchjobs.evals.outcomes import ScoredRun
from batchjobs.evals.statistics.arrays import Floats, Integers, Truths
from batchjobs.evals.statistics.multiplicity import holm_rows
from batchjobs.evals.statistics.nights import Side, effects, p_worse
from batchjobs.evals.statistics.pairs import Pair, pair
from batchjobs.evals.statistics.power import fewest_flips, needed_items
from batchjobs.evals.statistics.validity import Limits
from batchjobs.evals.statistics.verdict import ALPHA, tag_names, weights_of

DROPS = tuple(points / 100 for points in range(11))
NIGHTS = 10_000
NIGHTS_WITH_DROP = 2_000
_CELLS = 1 << 19
"""Nights × items drawn at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Of one true drop: shares of nights."""

    drop: float
    nights: int
    suspected: float
    """With a second run, as the first one alone is worse."""
    alarmed: float

    @property
    def error(self) -> float:
        """Standard error of `alarmed`."""
        return math.sqrt(self.alarmed * (1 - self.alarmed) / self.nights)


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    suite: str
    metric: str
    alpha: float
    items: int
    runs: int
    answers: int
    """Of one item in one run."""
    tags: tuple[str, ...]
    score: float
    flips: float
    """Share of answers that differ between two runs with nothing changed; for scores that are not
    0 and 1, the standard deviation of an item's answers."""
    is_binary: bool
    variance: float
    """Of one item's difference between a run and the baseline, with nothing changed."""
    loss: float
    """What an item scores that a drop breaks, on average."""
    rows: tuple[Row, ...]

    @property
    def false_alarms(self) -> float:
        return self.rows[0].alarmed

    def lines(self) -> list[str]:
        """For a terminal."""
        return [
            f"{self.suite} ({self.metric}): {_count(self.items, 'item')},"
            f" {_count(self.answers, 'answer')} each, a baseline of {_count(self.runs, 'run')}"
            f" at {100 * self.score:.1f} points",
            self._noise,
            f"Judged at α = {self.alpha:g}, one-sided, Holm over {self._family}; an alarm needs a"
            " second run.",
            "",
            "true drop   nights   run twice   alarm",
            *(
                f"{100 * row.drop:4.0f} points  {row.nights:6,}  {row.suspected:10.1%}"
                f"  {row.alarmed:6.1%} ± {1.96 * row.error:.1%}"
                for row in self.rows
            ),
            "",
            "For an alarm in 80% of nights, the suite alone needs about"
            f" {_count(self.items_for(0.01), 'item')} for a drop of 1 point,"
            f" {self.items_for(0.03):,} for 3 points.",
        ]

    def items_for(self, drop: float) -> int:
        """About how many items like these see a drop with a probability of 80 %."""
        of_drop = drop * max(self.loss - drop, 0.0)
        return max(
            needed_items(self.variance + of_drop, drop, alpha=self.alpha),
            math.ceil(fewest_flips(self.alpha) / drop),
        )

    @property
    def _noise(self) -> str:
        if self.is_binary:
            return f"With nothing changed, {self.flips:.1%} of answers differ between two runs."
        return f"With nothing changed, an item's score spreads by {100 * self.flips:.1f} points."

    @property
    def _family(self) -> str:
        return f"the suite and {_count(len(self.tags), 'tag')}" if self.tags else "the suite"


def simulate(
    baseline: Sequence[ScoredRun],
    limits: Limits,
    alpha: float = ALPHA,
    *,
    nights: int = NIGHTS,
    nights_with_drop: int = NIGHTS_WITH_DROP,
    drops: Sequence[float] = DROPS,
    seed: int = 0,
) -> Simulation:
    """Of nights with this one suite. Drops greater than the score are left out.

    Raises UsageError if no noise has been measured: it takes two answers of each item.
    """
    noise = _Noise.of(baseline)
    scopes = _scopes(noise.pairs)
    random = np.random.default_rng(seed)
    rows = [
        _row(noise, scopes, limits, alpha, drop, nights_with_drop if drop else nights, random)
        for drop in drops
        if drop == 0 or drop < noise.score
    ]
    return Simulation(
        suite=baseline[0].suite,
        metric=baseline[0].metric,
        alpha=alpha,
        items=len(noise.pairs),
        runs=len(baseline),
        answers=noise.answers,
        tags=tuple(scopes.names),
        score=noise.score,
        flips=noise.flips,
        is_binary=noise.is_binary,
        variance=noise.within * (1 / noise.answers + 1 / noise.scores.shape[1]),
        loss=noise.loss,
        rows=tuple(rows),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Noise:
    """The items that have all their answers, and how they vary; `scores` are [n, answers]."""

    pairs: tuple[Pair, ...]
    scores: Floats
    clusters: Integers
    answers: int
    is_binary: bool

    @classmethod
    def of(cls, baseline: Sequence[ScoredRun]) -> _Noise:
        every = pair(baseline, baseline)
        most = max((len(each.old) for each in every), default=0)
        if most < 2:
            raise UsageError(
                "Nobody can tell how much this suite's answers vary from one answer an item: make a"
                " baseline of several runs (`batchjobs evals baseline SUITE --runs 5`)."
            )
        pairs = tuple(each for each in every if len(each.old) == most)
        return cls(
            pairs=pairs,
            scores=np.array([each.old for each in pairs]),
            clusters=np.unique([each.cluster for each in pairs], return_inverse=True)[1],
            answers=max(1, most // len(baseline)),
            is_binary=all(each.is_binary for each in pairs),
        )

    @property
    def score(self) -> float:
        return float(self.scores.mean())

    @property
    def loss(self) -> float:
        """The score of an answer, weighted by itself: what breaks is what has one."""
        return float((self.scores**2).mean()) / self.score if self.score else 0.0

    @property
    def within(self) -> float:
        """Mean variance of an item's answers."""
        return float(self.scores.var(axis=1, ddof=1).mean())

    @property
    def flips(self) -> float:
        return 2 * self.within if self.is_binary else math.sqrt(self.within)

    @property
    def side(self) -> Side:
        return Side(
            sums=self.scores.sum(axis=1)[None],
            squares=(self.scores**2).sum(axis=1)[None],
            answers=self.scores.shape[1],
        )

    def draw(self, nights: int, q: float, random: np.random.Generator) -> tuple[Side, Side]:
        """The first run of each night, and both together; a share `q` of items is broken."""
        kept = random.random((nights, len(self.scores))) >= q
        runs = self._right(nights, random) if self.is_binary else self._spread(nights, random)
        first, second = (run * kept[..., None] for run in runs)
        return _side(first), _side(np.concatenate([first, second], axis=2))

    def _right(self, nights: int, random: np.random.Generator) -> tuple[Floats, Floats]:
        right = self.scores.sum(axis=1)
        a, b = self._prior()
        wrong = self.scores.shape[1] - right
        chances = random.beta(
            np.maximum(right + a, 1e-9), np.maximum(wrong + b, 1e-9), (nights, len(right))
        )
        if a + b == 0:  # Answers that never vary go on so.
            chances = np.broadcast_to(right / self.scores.shape[1], chances.shape)
        shape = (*chances.shape, self.answers)
        first, second = (random.random(shape) < chances[..., None] for _ in range(2))
        return first.astype(np.float64), second.astype(np.float64)

    def _prior(self) -> tuple[float, float]:
        """Of the beta law whose mean and variances, within items and between, are the suite's."""
        mean, within = self.score, self.within
        whole = mean * (1 - mean)
        if within <= 0 or whole <= within:
            return (0.0, 0.0) if within <= 0 else (mean * 1e6, (1 - mean) * 1e6)
        weight = within / (whole - within)
        return mean * weight, (1 - mean) * weight

    def _spread(self, nights: int, random: np.random.Generator) -> tuple[Floats, Floats]:
        means = self.scores.mean(axis=1)
        count = self.scores.shape[1]
        wider = math.sqrt((count + 1) / (count - 1))
        residues = (self.scores - means[:, None]) * wider
        shape = (nights, len(means), self.answers)
        rows = np.arange(len(means))[None, :, None]
        return tuple(
            means[None, :, None] + residues[rows, random.integers(count, size=shape)]
            for _ in range(2)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scopes:
    """The whole and its tags: which items each has, and its weight."""

    names: list[str]
    columns: list[Integers]
    weights: Floats


def _scopes(pairs: Sequence[Pair]) -> _Scopes:
    names = tag_names(pairs)
    columns = [np.arange(len(pairs))]
    columns += [
        np.array([at for at, each in enumerate(pairs) if name in each.tags]) for name in names
    ]
    return _Scopes(names=names, columns=columns, weights=np.array(weights_of([len(names)])[0]))


def _row(
    noise: _Noise,
    scopes: _Scopes,
    limits: Limits,
    alpha: float,
    drop: float,
    nights: int,
    random: np.random.Generator,
) -> Row:
    suspected = alarmed = 0
    for count in _portions(nights, len(noise.pairs) * noise.answers):
        first, pooled = noise.draw(count, drop / noise.score if drop else 0.0, random)
        found = _worse(noise, scopes, limits, alpha, first)
        again = np.flatnonzero(found.any(axis=1))
        suspected += len(again)
        if len(again):
            held = _worse(noise, scopes, limits, alpha, pooled.of_nights(again))
            alarmed += int((held & found[again]).any(axis=1).sum())
    return Row(drop=drop, nights=nights, suspected=suspected / nights, alarmed=alarmed / nights)


def _worse(noise: _Noise, scopes: _Scopes, limits: Limits, alpha: float, new: Side) -> Truths:
    """Which scopes are worse in which nights, [N, scopes]."""
    old = noise.side
    p_values, margins = [], []
    for columns in scopes.columns:
        sides = new.of_items(columns), old.of_items(columns)
        clusters = noise.clusters[columns]
        p_values.append(p_worse(*sides, clusters, is_binary=noise.is_binary))
        margins.append(effects(*sides) <= -limits.margin)
    adjusted = holm_rows(np.stack(p_values, axis=1), scopes.weights)
    return (adjusted < alpha) & np.stack(margins, axis=1)


def _side(scores: Floats) -> Side:
    return Side(sums=scores.sum(axis=2), squares=(scores**2).sum(axis=2), answers=scores.shape[2])


def _portions(nights: int, width: int) -> Iterator[int]:
    step = max(1, _CELLS // max(width, 1))
    for start in range(0, nights, step):
        yield min(step, nights - start)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
