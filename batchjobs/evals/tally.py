"""Scores of a run added up by metric and tag, in memory that does not grow with the run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from batchjobs.evals.outcomes import Missing
from batchjobs.evals.scorers.base import Mark, Marks


@dataclass(slots=True)
class Sum:
    """Of the marks of one metric."""

    scored: int = 0
    total: float = 0.0
    missing: dict[Missing, int] = field(default_factory=dict)

    def add(self, mark: Mark) -> None:
        if mark.score is not None:
            self.scored += 1
            self.total += mark.score
        elif mark.missing is not None:
            self.missing[mark.missing] = self.missing.get(mark.missing, 0) + 1

    @property
    def mean(self) -> float | None:
        return self.total / self.scored if self.scored else None

    def wire(self) -> dict[str, Any]:
        """`mean` of the answers that have a score (None without any), `scored` and `missing`."""
        return {
            "mean": self.mean,
            "scored": self.scored,
            "missing": {str(why): count for why, count in sorted(self.missing.items())},
        }


class Tally:
    """`wire` is what `EvalRun.scores` keeps: metric → `Sum.wire`, and its tags' by name."""

    def __init__(self, metrics: Iterable[str]) -> None:
        self._of: dict[str, Sum] = {metric: Sum() for metric in metrics}
        self._by_tag: dict[str, dict[str, Sum]] = {metric: {} for metric in self._of}

    def add(self, marks: Marks, tags: Iterable[str]) -> None:
        for metric, mark in marks.items():
            self._of[metric].add(mark)
            by_tag = self._by_tag[metric]
            for tag in tags:
                by_tag.setdefault(tag, Sum()).add(mark)

    def wire(self) -> dict[str, Any]:
        return {
            metric: {
                **total.wire(),
                "tags": {tag: by.wire() for tag, by in sorted(self._by_tag[metric].items())},
            }
            for metric, total in self._of.items()
        }


def shown_score(value: float | None) -> str:
    """For people: four decimals at most, and a power of ten for what is beyond a million."""
    if value is None or math.isnan(value):
        return "–"
    if abs(value) >= 1e6:
        return f"{value:.4g}".replace("inf", "∞")
    text = f"{value:.4f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def missing_words(missing: Mapping[str, int]) -> str:
    """For example `3 truncated, 1 unparsed`."""
    return ", ".join(f"{count:,} {why.replace('_', ' ')}" for why, count in missing.items())
