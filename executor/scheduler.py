"""Who runs in the next step: iteration-level scheduling (Orca, OSDI'22) by vLLM v1's one rule.

Every sequence has computed tokens and catches up with the tokens it has, under one token budget
a step: running ones first, then waiting ones. Decoding is catching up by one, prefill by many,
chunked prefill by as many as the budget leaves, recomputing after preemption by all again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from executor.blocks import BlockPool
from executor.sequence import Sequence
from executor.settings import Limits


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens [start, start + count) of a sequence, to be computed in one step."""

    sequence: Sequence
    start: int
    count: int

    @property
    def catches_up(self) -> bool:
        """Whether the last token of the sequence is among them, so that the next is sampled."""
        return self.start + self.count == len(self.sequence.tokens)


class Scheduler:
    """Two queues are the whole state: `waiting` in order of arrival, `running` in order of
    admission. Sequences hold blocks while running; waiting ones only those they share."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.pool = BlockPool(limits.num_blocks)
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.num_preemptions = 0
        self.num_recomputed = 0

    @property
    def has_work(self) -> bool:
        return bool(self.waiting or self.running)

    def add(self, sequence: Sequence) -> None:
        self.waiting.append(sequence)

    def schedule(self) -> list[Span]:
        """Choose the next step's tokens and give them blocks; marks them as computed."""
        preemptions = self.num_preemptions
        spans = list(self._continue_running())
        # After a preemption nobody is admitted, lest he be the next; but somebody must run.
        if self.num_preemptions == preemptions or not self.running:
            spans += self._admit_waiting(sum(span.count for span in spans))
        for span in spans:
            span.sequence.computed += span.count
        return spans

    def fork(self, parent: Sequence, children: list[Sequence]) -> None:
        """Queue `children`, whose prompt the running `parent` has computed, in front.

        They share its full prompt blocks; what lies in the last, partly filled one, and at least
        one token, they compute themselves.
        """
        prompt = len(parent.request.prompt_token_ids)
        shared = parent.block_table[: (prompt - 1) // self.limits.block_size]
        for child in reversed(children):
            self.pool.share(shared)
            child.block_table = list(shared)
            child.computed = len(shared) * self.limits.block_size
            self.waiting.appendleft(child)

    def remove(self, sequence: Sequence) -> None:
        """Take out a sequence that ended or is no longer wanted."""
        if sequence in self.running:
            self.running.remove(sequence)
        else:
            self.waiting.remove(sequence)
        self._drop_blocks(sequence)

    def check_idle(self) -> None:
        """Nothing is left to do: raises RuntimeError when a sequence or a block is."""
        if self.has_work:
            raise RuntimeError(
                f"{len(self.running)} running and {len(self.waiting)} waiting sequences are left "
                f"with {self.pool.num_free} of {self.pool.num_blocks} blocks free"
            )
        self.pool.check_integrity(())

    def _continue_running(self) -> Iterator[Span]:
        budget = self.limits.max_num_batched_tokens
        position = 0
        while position < len(self.running) and budget > 0:
            sequence = self.running[position]
            count = min(sequence.remaining, budget)
            if not self._make_room(sequence, count):
                return
            self._extend(sequence, count)
            yield Span(sequence, sequence.computed, count)
            budget -= count
            position += 1

    def _make_room(self, sequence: Sequence, count: int) -> bool:
        """Preempt the newest until `sequence` can grow; False when it was the newest itself."""
        while not self.pool.can_allocate(self._missing_blocks(sequence, count)):
            victim = self.running.pop()
            self._preempt(victim)
            if victim is sequence:
                return False
        return True

    def _preempt(self, sequence: Sequence) -> None:
        """Recompute later: only tokens are kept."""
        self.num_recomputed += sequence.computed
        self._drop_blocks(sequence)
        self.waiting.appendleft(sequence)
        self.num_preemptions += 1

    def _admit_waiting(self, used: int) -> Iterator[Span]:
        budget = self.limits.max_num_batched_tokens - used
        while self.waiting and budget > 0 and len(self.running) < self.limits.max_num_seqs:
            if not self._can_admit(self.waiting[0]):
                return
            sequence = self.waiting.popleft()
            self._extend(sequence, sequence.remaining)
            self.running.append(sequence)
            count = min(sequence.remaining, budget)
            yield Span(sequence, sequence.computed, count)
            budget -= count

    def _can_admit(self, sequence: Sequence) -> bool:
        """All its tokens must fit, with a block to spare for each running one, lest it be
        preempted at once. When nothing runs, blocks shared by waiting ones make way."""
        needed = self._missing_blocks(sequence, sequence.remaining)
        if self.running:
            return self.pool.can_allocate(needed + len(self.running))
        if not self.pool.can_allocate(needed):
            for other in self.waiting:
                if other is not sequence:
                    self._drop_blocks(other)
        return self.pool.can_allocate(needed)

    def _missing_blocks(self, sequence: Sequence, count: int) -> int:
        blocks = -(-(sequence.computed + count) // self.limits.block_size)
        return max(0, blocks - len(sequence.block_table))

    def _extend(self, sequence: Sequence, count: int) -> None:
        sequence.block_table += self.pool.allocate(self._missing_blocks(sequence, count))

    def _drop_blocks(self, sequence: Sequence) -> None:
        self.pool.release(sequence.block_table)
        sequence.block_table = []
        sequence.computed = 0
