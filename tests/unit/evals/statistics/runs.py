"""Scored runs as a suite would have them, made of nothing but scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from batchjobs.evals.outcomes import Conditions, ItemOutcome, Missing, ScoredRun

CONDITIONS = Conditions(
    items="items", prompts="prompts", template="template", scorer="scorer", sampling="sampling",
    model="model",
)  # fmt: skip
Answer = float | Missing


def run(
    name: str,
    answers: Sequence[Answer | Sequence[Answer]],
    *,
    suite: str = "arithmetic",
    metric: str = "exact",
    cluster: Callable[[int], str] = str,
    tags: Callable[[int], tuple[str, ...]] = lambda item: (),
    **conditions: Any,
) -> ScoredRun:
    """One answer an item, or several; an answer is a score, or why there is none."""
    outcomes = [
        ItemOutcome(
            item=str(item),
            sample=sample,
            score=None if isinstance(answer, Missing) else float(answer),
            missing=answer if isinstance(answer, Missing) else None,
            cluster=cluster(item),
            tags=tags(item),
        )
        for item, given in enumerate(answers)
        for sample, answer in enumerate([given] if isinstance(given, (float, int, str)) else given)
    ]
    return ScoredRun(
        run=name,
        suite=suite,
        metric=metric,
        conditions=replace(CONDITIONS, **conditions),
        outcomes=tuple(outcomes),
    )


def flipped(*, fixed: int, broken: int, items: int) -> tuple[list[float], list[float]]:
    """Answers tonight and before: those fixed first, then those broken; four in five of the others
    are right."""
    same = [float(item % 5 > 0) for item in range(items - fixed - broken)]
    return [1.0] * fixed + [0.0] * broken + same, [0.0] * fixed + [1.0] * broken + same
