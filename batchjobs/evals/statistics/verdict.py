"""Did we get worse? `ok`, `worse`, `better`, or `no verdict` and why.

```
runs ─▶ validity gate ─▶ pairs ─▶ one-sided test a suite and a tag ─▶ Holm over all ─▶ word
          │ no verdict (why)                                            │ worse: run once more,
                                                                        ▼ then of both together
```
Suites spend one half of the night's level, tags the other (Holm with weights): a suite of many
tags must not become blind as a whole. An alarm must hold twice: in the first run, and in the first
and a second one of the whole suite together. A second run of only the flipped items would be
biased, as they fall back to their means.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from batchjobs.evals.outcomes import ScoredRun
from batchjobs.evals.p_values import shown_p
from batchjobs.evals.statistics.comparison import Comparison, compare, direction
from batchjobs.evals.statistics.multiplicity import holm
from batchjobs.evals.statistics.pairs import Pair, pair
from batchjobs.evals.statistics.scores import score
from batchjobs.evals.statistics.validity import Limits, Rate, rates, why_invalid

ALPHA = 0.01
MIN_TAG_ITEMS = 20
"""A tag with fewer is not judged: it could convince nobody, and would cost the others."""


class Word(StrEnum):
    OK = "ok"
    WORSE = "worse"
    BETTER = "better"
    NO_VERDICT = "no verdict"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is judged: tonight's run, the pinned ones, and the second run if there was one."""

    candidate: ScoredRun
    baseline: Sequence[ScoredRun]
    limits: Limits
    rerun: ScoredRun | None = None
    without: str = "no baseline is pinned"
    """Why, if the baseline has no runs."""
    against: str | None = None
    """Whose baseline it is, if another model's."""

    @property
    def why_invalid(self) -> str | None:
        if not self.baseline:
            return self.without
        return why_invalid(self.tonight, self.baseline, self.limits)

    @property
    def tonight(self) -> tuple[ScoredRun, ...]:
        return (self.candidate,) if self.rerun is None else (self.candidate, self.rerun)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """An item that is not what it was. Scores are means of its answers."""

    item: str
    tags: tuple[str, ...]
    score: float
    baseline: float
    is_broken: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    suite: str
    metric: str
    word: Word
    why: str | None
    """Of no verdict, its cause; of `worse`, what is."""
    runs: tuple[str, ...]
    baseline_runs: tuple[str, ...]
    whole: Comparison | None
    """None without a verdict."""
    tags: tuple[Comparison, ...]
    rates: tuple[Rate, ...]
    flips: tuple[Flip, ...]
    """Broken ones first, those that were surest before all."""
    alpha: float
    is_confirmed: bool
    """Whether a second run is part of it."""
    against: str | None = None
    """Whose baseline it was, if another model's."""

    @property
    def needs_rerun(self) -> bool:
        """Whether it is no alarm yet: the whole suite is to run once more."""
        return self.word == Word.WORSE and not self.is_confirmed

    @property
    def is_alarm(self) -> bool:
        return self.word == Word.WORSE and self.is_confirmed

    @property
    def sentence(self) -> str:
        """All that a report must say of it, in one line."""
        if self.whole is None:
            return f"{self.word} ({self.why})"
        against = f"; against the baseline of {self.against}" if self.against else ""
        return f"{self.word}{f' ({self.why})' if self.why else ''}: {describe(self.whole)}{against}"


def verdict(
    candidate: ScoredRun,
    baseline: Sequence[ScoredRun],
    limits: Limits,
    alpha: float = ALPHA,
    *,
    rerun: ScoredRun | None = None,
) -> Verdict:
    """Of one suite that is alone in its night."""
    case = Case(candidate=candidate, baseline=baseline, limits=limits, rerun=rerun)
    return verdicts([case], alpha)[0]


def verdicts(cases: Sequence[Case], alpha: float = ALPHA) -> list[Verdict]:
    """Of everything that is judged in one night, in the order given."""
    reasons = [each.why_invalid for each in cases]
    valid = [each for each, reason in zip(cases, reasons, strict=True) if reason is None]
    # What the first runs say alone, and what all say together.
    first = _judge([replace(each, rerun=None) for each in valid], alpha)
    pooled = _judge(valid, alpha) if any(each.rerun for each in valid) else first
    found = iter(_verdict(*parts, alpha=alpha) for parts in zip(valid, first, pooled, strict=True))
    return [
        next(found) if reason is None else _no_verdict(each, reason, alpha)
        for each, reason in zip(cases, reasons, strict=True)
    ]


def describe(found: Comparison) -> str:
    """Effect, interval, p, flips, and what could have been seen."""
    low, high = 100 * found.interval.low, 100 * found.interval.high
    return (
        f"{100 * found.effect:+.1f} points [{low:+.1f}, {high:+.1f}],"
        f" p {shown_p(found.p_worse, equals='= ')} (Holm {shown_p(found.adjusted_worse)}),"
        f" {found.broken} broken and {found.fixed} fixed of {found.items} items;"
        f" {_sight(found.smallest_drop)}"
    )


def _sight(drop: float) -> str:
    return "sees no drop" if math.isinf(drop) else f"sees drops of {100 * drop:.1f} points or more"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    pairs: tuple[Pair, ...]
    whole: Comparison
    tags: tuple[Comparison, ...]
    is_better: bool
    is_below_floor: bool

    @property
    def every(self) -> tuple[Comparison, ...]:
        return (self.whole, *self.tags)


def tag_names(pairs: Sequence[Pair]) -> list[str]:
    """Those with items enough, in the alphabet's order; one that all items have says no more than
    the whole."""
    counts = Counter(tag for each in pairs for tag in set(each.tags))
    return sorted(tag for tag, count in counts.items() if MIN_TAG_ITEMS <= count < len(pairs))


def weights_of(tags_of_suites: Sequence[int]) -> list[list[float]]:
    """What each suite, and each of its tags, has of the level: a row a suite, the whole first."""
    suites, tags = len(tags_of_suites), sum(tags_of_suites)
    of_suite = (0.5 if tags else 1.0) / suites
    of_tag = 0.5 / max(tags, 1)
    return [[of_suite, *[of_tag] * count] for count in tags_of_suites]


def _judge(cases: Sequence[Case], alpha: float) -> list[_Judged]:
    if not cases:
        return []
    paired = [pair(each.tonight, each.baseline) for each in cases]
    names = [tag_names(pairs) for pairs in paired]
    weights = weights_of([len(tags) for tags in names])
    found = [
        [
            compare(_with_tag(pairs, tag), alpha=alpha * weight, tag=tag)
            for tag, weight in zip([None, *tags], shares, strict=True)
        ]
        for pairs, tags, shares in zip(paired, names, weights, strict=True)
    ]
    every = [each for row in found for each in row]
    adjusted = iter(holm([each.p_worse for each in every], [w for row in weights for w in row]))
    better = holm([row[0].p_better for row in found])
    return [
        _Judged(
            pairs=pairs,
            whole=replace(whole, adjusted_worse=next(adjusted)),
            tags=tuple(replace(each, adjusted_worse=next(adjusted)) for each in tags),
            is_better=p < alpha and whole.effect >= case.limits.margin,
            is_below_floor=_is_below_floor(case, alpha),
        )
        for case, pairs, (whole, *tags), p in zip(cases, paired, found, better, strict=True)
    ]


def _with_tag(pairs: Sequence[Pair], tag: str | None) -> Sequence[Pair]:
    return pairs if tag is None else [each for each in pairs if tag in each.tags]


def _is_below_floor(case: Case, alpha: float) -> bool:
    """Surely: the upper limit of its interval is, not only the score."""
    if case.limits.floor is None:
        return False
    found = score(case.tonight, confidence=1 - 2 * alpha)
    return found is not None and found.interval.high < case.limits.floor


def _verdict(case: Case, first: _Judged, pooled: _Judged, *, alpha: float) -> Verdict:
    causes = [
        cause for cause in _causes(case, pooled, alpha) if cause in _causes(case, first, alpha)
    ]
    word = Word.WORSE if causes else Word.BETTER if pooled.is_better else Word.OK
    return Verdict(
        suite=case.candidate.suite,
        metric=case.candidate.metric,
        word=word,
        why=_why_worse(case, pooled, causes),
        runs=_names(case.tonight),
        baseline_runs=_names(case.baseline),
        whole=pooled.whole,
        tags=pooled.tags,
        rates=rates(case.tonight, case.baseline, case.limits),
        flips=_flips(pooled.pairs),
        alpha=alpha,
        is_confirmed=case.rerun is not None,
        against=case.against,
    )


_FLOOR = 0
Cause = str | int | None
"""A tag that is worse; None for the suite as a whole; `_FLOOR`."""


def _causes(case: Case, judged: _Judged, alpha: float) -> list[Cause]:
    found: list[Cause] = [
        each.tag
        for each in judged.every
        if each.adjusted_worse < alpha and each.effect <= -case.limits.margin
    ]
    return [*found, _FLOOR] if judged.is_below_floor else found


def _why_worse(case: Case, judged: _Judged, causes: Sequence[Cause]) -> str | None:
    """What is worse, unless it is the whole suite and nothing else."""
    tags = [
        f"in tag {each.tag}: {100 * each.effect:+.1f} points, Holm {each.adjusted_worse:.4f}"
        for each in judged.tags
        if each.tag in causes
    ]
    found = []
    if tags:
        whole = "as a whole, and" if None in causes else "not as a whole, but"
        found.append(f"{whole} {', '.join(tags)}")
    if _FLOOR in causes:
        found.append(f"surely below the floor of {case.limits.floor:g}")
    return "; ".join(found) or None


def _no_verdict(case: Case, reason: str, alpha: float) -> Verdict:
    return Verdict(
        suite=case.candidate.suite,
        metric=case.candidate.metric,
        word=Word.NO_VERDICT,
        why=reason,
        runs=_names(case.tonight),
        baseline_runs=_names(case.baseline),
        whole=None,
        tags=(),
        rates=rates(case.tonight, case.baseline, case.limits),
        flips=(),
        alpha=alpha,
        is_confirmed=case.rerun is not None,
    )


def _names(runs: Sequence[ScoredRun]) -> tuple[str, ...]:
    return tuple(each.run for each in runs)


def _flips(pairs: Sequence[Pair]) -> tuple[Flip, ...]:
    are_binary = all(each.is_binary for each in pairs)
    ways = [(each, direction(each, is_binary=are_binary)) for each in pairs]
    found = [
        Flip(
            item=each.item,
            tags=each.tags,
            score=each.new_mean,
            baseline=each.old_mean,
            is_broken=way < 0,
        )
        for each, way in ways
        if way
    ]
    return tuple(
        sorted(found, key=lambda flip: (not flip.is_broken, -abs(flip.score - flip.baseline)))
    )
