"""Keeps account of an engine's run, step by step, in memory that does not grow with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Sequence as Many
from dataclasses import dataclass
from typing import Protocol

from executor.blocks import BlockPool
from executor.histogram import Histogram
from executor.roofline import ModelCost, StepWork, WorkTally, step_work
from executor.scheduler import Scheduler
from executor.span import Span

FULL = 0.9
"""Share of the KV cache from which on it counts as full."""
EMPTY = 0.5
"""Share under which it counts as hardly used."""


class StepWatcher(Protocol):
    """Whom the engine tells of its steps."""

    def observe(self, spans: Many[Span], scheduler: Scheduler) -> None:
        """Called before each step is computed, in the engine's thread; `spans` are the step."""

    def observe_texts(self, count: int, work: StepWork) -> None:
        """The same of a step that computes whole texts, which end with it."""


@dataclass(frozen=True, slots=True)
class Moment:
    """How many sequences ran from `at` on, in seconds since the run began."""

    at: float
    running: int


@dataclass(slots=True)
class Symptoms:
    """Steps in which something was short while requests waited."""

    steps: int = 0
    memory_short: int = 0
    """The KV cache was full, slots were free."""
    slots_short: int = 0
    """Every slot was taken, the KV cache hardly used."""


class Recorder:
    """A `StepWatcher`. A step lasts until the next begins, so host work counts as its part.

    `first_tokens` are the seconds from the start of the run to each answer's first token: all
    requests are there from the start, however few the engine has looked at.
    """

    def __init__(
        self,
        cost: ModelCost | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
        keeps_course: bool = False,
    ) -> None:
        self._clock = clock
        self._keeps_course = keeps_course
        self.tally = None if cost is None else WorkTally(cost)
        self.begin()

    def begin(self) -> None:
        """Forget what was; the run begins now."""
        self.steps = Histogram()
        self.first_tokens = Histogram()
        self.symptoms = Symptoms()
        self.course: list[Moment] = []
        self.running_seconds = 0.0
        self.busy_seconds = 0.0
        if self.tally is not None:
            self.tally.reset()
        self._started = self._clock()
        self._step: tuple[float, int, int] | None = None

    def observe(self, spans: Many[Span], scheduler: Scheduler) -> None:
        now = self.end()
        running = len(scheduler.running)
        first = sum(span.catches_up and not span.sequence.num_generated for span in spans)
        self._step = now, running, first
        if self._keeps_course:
            self.course.append(Moment(now - self._started, running))
        if self.tally is not None:
            self.tally.add(work_of(spans, scheduler.limits.block_size))
        if scheduler.waiting:
            self._note(running >= scheduler.limits.max_num_seqs, scheduler.pool)
        self.symptoms.steps += 1

    def observe_texts(self, count: int, work: StepWork) -> None:
        now = self.end()
        self._step = now, count, 0
        if self._keeps_course:
            self.course.append(Moment(now - self._started, count))
        if self.tally is not None:
            self.tally.add(work)
        self.symptoms.steps += 1

    def end(self) -> float:
        """The last step is over; the time by the recorder's clock."""
        now = self._clock()
        if self._step is None:
            return now
        began, running, first = self._step
        self._step = None
        self.steps.add(now - began)
        self.busy_seconds += now - began
        self.running_seconds += running * (now - began)
        for _ in range(first):
            self.first_tokens.add(now - self._started)
        if self._keeps_course:
            self.course.append(Moment(now - self._started, 0))
        return now

    @property
    def mean_running(self) -> float:
        """Sequences that ran, averaged over time."""
        return self.running_seconds / self.busy_seconds if self.busy_seconds else 0.0

    def _note(self, slots_taken: bool, pool: BlockPool) -> None:
        usage = pool.num_used / pool.num_blocks
        self.symptoms.memory_short += usage > FULL and not slots_taken
        self.symptoms.slots_short += usage < EMPTY and slots_taken


def work_of(spans: Many[Span], block_size: int) -> StepWork:
    """The work of a step; blocks that sequences share are read once."""
    contexts = sum(span.end for span in spans)
    tables = [span.sequence.block_table for span in spans]
    again = sum(map(len, tables)) - len(set().union(*tables))
    return step_work(
        ((span.start, span.positions, span.rows) for span in spans),
        kv_tokens=max(0, contexts - again * block_size),
    )
