"""What a run of a suite comes to: one outcome an item and sample, beside what must be equal to
compare two runs."""

from dataclasses import dataclass
from enum import StrEnum


class Missing(StrEnum):
    """Why an item has no score. "Not answered" is never "wrong": each has a rate, and a limit, of
    its own."""

    TRUNCATED = "truncated"
    """The answer ran into its token limit before anything could be scored in it."""
    EMPTY = "empty"
    """An answer came, without text."""
    UNPARSED = "unparsed"
    """Text came in which the scorer found no answer."""
    JUDGE_FAILED = "judge_failed"
    """The judge did not answer, or not with a grade."""
    REQUEST_FAILED = "request_failed"
    """The line ended in the error file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemOutcome:
    """One item of a run, one sample: a `score`, or the reason why it is `missing`, never both."""

    item: str
    """The item's id in the suite's dataset."""
    sample: int
    """Counts the repeats from 0."""
    score: float | None
    missing: Missing | None
    cluster: str
    """What outcomes that are not independent share: the item, or a group that the suite names."""
    tags: tuple[str, ...]

    def __post_init__(self) -> None:
        if (self.score is None) == (self.missing is None):
            raise ValueError(
                f"item {self.item} must have either a score or a reason for having none"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Hashes of what was asked and how it was scored; two runs compare if all but `model` are
    equal."""

    items: str
    prompts: str
    template: str
    scorer: str
    sampling: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRun:
    """One finished run under one metric."""

    run: str
    suite: str
    metric: str
    conditions: Conditions
    outcomes: tuple[ItemOutcome, ...]
