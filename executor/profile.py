"""Where the time of each step went. Off it costs a call that does nothing, a few times a step.

Parts nest, and each is charged its own time only: a linear layer inside the forward pass is
taken off the rest of the model. What no part accounts for is the caller's: results, checkpoints.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

_T = TypeVar("_T")


class Part(StrEnum):
    """What a step's time is spent on."""

    SCHEDULING = "scheduling"
    ATTENTION = "attention"
    LINEARS = "linears"
    MODEL = "rest of the model"
    SAMPLING = "sampling"
    COMMIT = "commit and detokenise"
    REQUESTS = "tokenising, waited for"
    """Reading and tokenising them."""
    CALLER = "I/O between steps"
    """Results, checkpoints, and whatever else the caller does."""


class StepProfile(Protocol):
    """What the engine tells of its steps."""

    def measure(self, part: Part) -> AbstractContextManager[object]:
        """Charge the time inside to `part`."""

    def watch_source(self, source: Iterator[_T]) -> Iterator[_T]:
        """`source`, with the waiting for its next item charged to REQUESTS."""

    def step(self, tokens: int) -> None:
        """A step of so many positions begins."""


class NoProfile:
    """The profile of an engine that is not watched."""

    _NOTHING: AbstractContextManager[object] = nullcontext()

    def measure(self, part: Part) -> AbstractContextManager[object]:
        return self._NOTHING

    def watch_source(self, source: Iterator[_T]) -> Iterator[_T]:
        return source

    def step(self, tokens: int) -> None:
        """Not counted."""


NO_PROFILE = NoProfile()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartShare:
    """`share` of the wall time, 0 to 1; `step_ms` is the mean over steps."""

    name: str
    seconds: float
    share: float
    step_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileReport:
    """Parts in the order of `Part`; their seconds add up to `wall_seconds`."""

    wall_seconds: float
    steps: int
    tokens: int
    """Positions computed."""
    parts: tuple[PartShare, ...]


class Profile:
    """A `StepProfile` that counts. `settle` waits for work that a device still has in hand."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.perf_counter,
        settle: Callable[[], None] | None = None,
    ) -> None:
        self._clock = clock
        self._settle = settle
        self._measures = {part: _Measure(self, part) for part in Part}
        self.reset()

    def reset(self) -> None:
        """Begin anew, between steps."""
        self._seconds = dict.fromkeys(Part, 0.0)
        self._open = [Part.CALLER]
        self._started = self._since = self._clock()
        self._steps = self._tokens = 0

    def measure(self, part: Part) -> AbstractContextManager[object]:
        return self._measures[part]

    def watch_source(self, source: Iterator[_T]) -> Iterator[_T]:
        waiting = self._measures[Part.REQUESTS]
        while True:
            with waiting:
                try:
                    item = next(source)
                except StopIteration:
                    return
            yield item

    def step(self, tokens: int) -> None:
        self._steps += 1
        self._tokens += tokens

    def report(self) -> ProfileReport:
        self._charge()
        wall = self._since - self._started
        return ProfileReport(
            wall_seconds=wall,
            steps=self._steps,
            tokens=self._tokens,
            parts=tuple(
                PartShare(
                    name=part.value,
                    seconds=seconds,
                    share=seconds / wall if wall else 0.0,
                    step_ms=1000 * seconds / self._steps if self._steps else 0.0,
                )
                for part, seconds in self._seconds.items()
            ),
        )

    def enter(self, part: Part) -> None:
        self._charge()
        self._open.append(part)

    def leave(self, part: Part) -> None:
        """End `part`, and what was left open inside it when an error cut it short."""
        self._charge()
        while len(self._open) > 1 and self._open.pop() is not part:
            pass

    def _charge(self) -> None:
        if self._settle is not None:
            self._settle()
        now = self._clock()
        self._seconds[self._open[-1]] += now - self._since
        self._since = now


class _Measure:
    """`with` one part; holds nothing of its own, so that it can be open at several depths."""

    __slots__ = ("_part", "_profile")

    def __init__(self, profile: Profile, part: Part) -> None:
        self._profile = profile
        self._part = part

    def __enter__(self) -> None:
        self._profile.enter(self._part)

    def __exit__(self, *_: object) -> None:
        self._profile.leave(self._part)
