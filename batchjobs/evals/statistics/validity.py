"""Whether two sets of runs may be compared at all. Those that may not have no verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields

from batchjobs.evals.outcomes import Conditions, Missing, ScoredRun
from batchjobs.evals.statistics.pairs import outcomes

DEFAULT_MAX_RATE = 0.01
MAY_DIFFER = "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a suite asks of its runs; shares of answers, and of points where scores are 0 to 1.

    A rate that the baseline has already is allowed, with `rate_margin` on top.
    """

    min_answered: float = 0.99
    """Share of answers that must have a score."""
    max_rates: Mapping[Missing, float] = field(default_factory=dict)
    """The most of each reason for having none; 1 % where nothing is said."""
    rate_margin: float = 0.01
    margin: float = 0.0
    """A smaller change is `ok`, however sure it is."""
    floor: float | None = None
    """A score that is surely below it is `worse`, whatever the baseline."""

    def max_rate(self, missing: Missing) -> float:
        return self.max_rates.get(missing, DEFAULT_MAX_RATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How often there was no score for one reason, tonight and in the baseline."""

    missing: Missing
    share: float
    baseline: float
    limit: float

    @property
    def is_within(self) -> bool:
        return self.share <= self.limit + 1e-12


def rates(
    candidate: Sequence[ScoredRun], baseline: Sequence[ScoredRun], limits: Limits
) -> tuple[Rate, ...]:
    """One of each reason, in the order of `Missing`."""
    return tuple(_rate(candidate, baseline, limits, missing) for missing in Missing)


def _rate(
    candidate: Sequence[ScoredRun],
    baseline: Sequence[ScoredRun],
    limits: Limits,
    missing: Missing,
) -> Rate:
    before = _share(baseline, missing)
    return Rate(
        missing=missing,
        share=_share(candidate, missing),
        baseline=before,
        limit=max(limits.max_rate(missing), before + limits.rate_margin),
    )


def why_invalid(
    candidate: Sequence[ScoredRun], baseline: Sequence[ScoredRun], limits: Limits
) -> str | None:
    """Why there can be no verdict, in words; None if there can."""
    if not baseline:
        return "no baseline is pinned"
    for reason in (
        _why_unlike([*candidate, *baseline]),
        _why_unanswered(candidate, baseline, limits),
        _why_over(rates(candidate, baseline, limits)),
    ):
        if reason is not None:
            return reason
    return None


def _why_unlike(runs: Sequence[ScoredRun]) -> str | None:
    first, *others = runs
    for other in others:
        if (other.suite, other.metric) != (first.suite, first.metric):
            return (
                f"{other.run} is of {other.suite} ({other.metric}), not of {first.suite}"
                f" ({first.metric})"
            )
        if unlike := _unlike(first.conditions, other.conditions):
            return f"{first.run} and {other.run} differ in {_listed(unlike)}"
        if _items([first]) != _items([other]):
            return f"{first.run} and {other.run} differ in items"
    return None


def _unlike(one: Conditions, other: Conditions) -> list[str]:
    names = [known.name for known in fields(Conditions) if known.name != MAY_DIFFER]
    return [name for name in names if getattr(one, name) != getattr(other, name)]


def _listed(words: Sequence[str]) -> str:
    return " and ".join(words) if len(words) < 3 else f"{', '.join(words[:-1])} and {words[-1]}"


def _items(runs: Sequence[ScoredRun]) -> set[str]:
    return {outcome.item for outcome in outcomes(runs)}


def _why_unanswered(
    candidate: Sequence[ScoredRun], baseline: Sequence[ScoredRun], limits: Limits
) -> str | None:
    answered, before = _answered(candidate), _answered(baseline)
    if answered is None or before is None:
        return "there are no items"
    least = min(limits.min_answered, before - limits.rate_margin)
    if answered == 0:
        return "no answer has a score"
    if answered < least - 1e-12:
        return f"only {answered:.1%} of the answers have a score, at least {least:.1%} must"
    return None


def _why_over(found: Iterable[Rate]) -> str | None:
    over = [
        f"{rate.share:.1%} {rate.missing.replace('_', ' ')} (at most {rate.limit:.1%})"
        for rate in found
        if not rate.is_within
    ]
    return _listed(over) or None


def _answered(runs: Sequence[ScoredRun]) -> float | None:
    found = list(outcomes(runs))
    return sum(each.score is not None for each in found) / len(found) if found else None


def _share(runs: Sequence[ScoredRun], missing: Missing) -> float:
    found = list(outcomes(runs))
    return sum(each.missing == missing for each in found) / len(found) if found else 0.0
