"""Who runs in the next step: iteration-level scheduling (Orca, OSDI'22) by vLLM v1's one rule.

Every sequence has computed tokens and catches up with the tokens it has, under one token budget
a step: running ones first, then waiting ones. Decoding is catching up by one, prefill by many,
chunked prefill by as many as the budget leaves, recomputing after preemption by all again. What
others have computed of a prompt is taken over; who would compute what a running one is about to
compute lets others go first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from executor.blocks import BlockPool
from executor.forecast import Forecast
from executor.lengths import LengthModel
from executor.metrics import EngineMetrics
from executor.order import WaitingQueue
from executor.padding import PaddedBatches
from executor.prefix import Match, PrefixTree
from executor.sequence import Sequence
from executor.settings import Limits, Scheduling


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
    """Two queues are the whole state: `waiting` in the policy's order, `running` in order of
    admission. Running sequences hold blocks; for waiting ones the prefix tree does.

    Of the last step: `admitted` are the sequences that began to run, and `copies` the pairs of
    blocks (from, to) whose content is to be copied before the step, all sources being read first.
    """

    def __init__(
        self,
        limits: Limits,
        scheduling: Scheduling | None = None,
        metrics: EngineMetrics | None = None,
    ) -> None:
        self.limits = limits
        self.scheduling = scheduling or Scheduling()
        self.metrics = metrics or EngineMetrics()
        self.pool = BlockPool(limits.num_blocks)
        self.prefixes = PrefixTree(self.pool, limits.block_size)
        self.lengths = LengthModel(self.scheduling.expected_tokens)
        self.waiting = WaitingQueue(
            self.scheduling.policy,
            self.lengths,
            self.prefixes,
            cache_tokens=limits.num_blocks * limits.block_size,
        )
        self.running: list[Sequence] = []
        self.admitted: list[Sequence] = []
        self.copies: list[tuple[int, int]] = []
        self._padded = PaddedBatches()
        self.slots = 0
        """Taken in the last step; in a static batch those of ended sequences are."""

    @property
    def has_work(self) -> bool:
        return bool(self.waiting or self.running)

    @property
    def _is_static(self) -> bool:
        return self.scheduling.batching == "static"

    def add(self, sequence: Sequence) -> None:
        self.waiting.add(sequence)
        if self.scheduling.shares_prefixes:
            self.prefixes.enter(sequence)
        elif sequence.group.width > 1:
            group = sequence.group
            group.root = group.root or self.prefixes.private_root()
            self.prefixes.enter(sequence, group.root)

    def schedule(self) -> list[Span]:
        """Choose the next step's tokens and give them blocks; marks them as computed."""
        self.admitted, self.copies = [], []
        preemptions = self.metrics.num_preemptions_total
        spans = self._continue_running()
        # After a preemption nobody is admitted, lest he be the next; but somebody must run.
        if self.metrics.num_preemptions_total == preemptions or not self.running:
            spans += self._admit_waiting(sum(span.count for span in spans))
        for span in spans:
            span.sequence.computed += span.count
        ended = self.slots if self._is_static else 0
        self.slots = max(ended, len(self.running))
        return spans

    def remove(self, sequence: Sequence) -> None:
        """Take out a sequence that ended or is no longer wanted."""
        if sequence in self.running:
            self.running.remove(sequence)
            self.prefixes.stop(sequence)
            if self._is_static:
                self._leave_batch(sequence)
        else:
            self.waiting.remove(sequence)
            self.prefixes.leave(sequence)
        self._drop_blocks(sequence)

    def check_idle(self) -> None:
        """Nothing is left to do: raises RuntimeError when a sequence or a block is."""
        if self.has_work or not self.prefixes.is_empty:
            raise RuntimeError(
                f"{len(self.running)} running and {len(self.waiting)} waiting sequences are left "
                f"with {self.pool.num_free} of {self.pool.num_blocks} blocks free"
            )
        self.check_blocks()

    def check_blocks(self) -> None:
        """Raises RuntimeError when blocks, sequences and the prefix tree disagree."""
        tables = [sequence.block_table for sequence in self.running]
        self.pool.check_integrity(tables + self.prefixes.tables())

    def _continue_running(self) -> list[Span]:
        while True:
            spans = list(self._next_spans())
            missing = sum(self._missing_blocks(span.sequence, span.count) for span in spans)
            if self.pool.can_allocate(missing):
                break
            if not self.prefixes.evict():
                self._preempt_one()
        for span in spans:
            self._extend(span.sequence, span.count)
        return spans

    def _next_spans(self) -> Iterator[Span]:
        budget = self.limits.max_num_batched_tokens
        for sequence in self.running:
            if budget <= 0:
                return
            count = min(sequence.remaining, budget)
            yield Span(sequence, sequence.computed, count)
            budget -= count

    def _preempt_one(self) -> None:
        """Recompute later the sequence of which least is to be recomputed, the newest of such."""
        block_size = self.limits.block_size
        victim = min(
            reversed(self.running), key=lambda s: s.computed - s.shared_blocks * block_size
        )
        self.running.remove(victim)
        self.prefixes.pause(victim)
        victim.recomputes_to = max(victim.recomputes_to, victim.computed)
        self._drop_blocks(victim)
        self.waiting.add_first(victim)
        self.metrics.num_preemptions_total += 1
        self.lengths.expect_more()

    def _admit_waiting(self, used: int) -> Iterator[Span]:
        budget = self.limits.max_num_batched_tokens - used
        slots = self.limits.max_num_seqs - len(self.running)
        if not self.waiting or slots <= 0 or budget <= 0 or (self._is_static and self.running):
            return
        forecast = self._forecast()
        # A glance at a few more than fit, as some may wait for what is being computed.
        for sequence in list(islice(self.waiting, slots + self.limits.max_num_seqs)):
            if slots <= 0 or (budget <= 0 and not self._is_static):
                return
            match = self.prefixes.match(sequence)
            if match.is_worth_waiting:
                continue
            if not self._can_admit(sequence, match, forecast):
                return
            self._admit(sequence, match)
            slots -= 1
            if count := min(sequence.remaining, budget):
                yield Span(sequence, sequence.computed, count)
                budget -= count

    def _can_admit(self, sequence: Sequence, match: Match, forecast: Forecast) -> bool:
        """It must fit beside the running ones until it ends, lest somebody be preempted; when
        nothing runs it always does, as what is kept for waiting ones makes way."""
        blocks, shared = self._blocks(len(sequence.tokens)), match.tokens // self.limits.block_size
        forecast.add(to_come=self._tokens_to_come(sequence), private=blocks - shared)
        return not self.running or forecast.fits(self.pool.num_free - (blocks - shared))

    def _admit(self, sequence: Sequence, match: Match) -> None:
        whole, rest = divmod(match.tokens, self.limits.block_size)
        table = match.table[: whole + (rest > 0)]
        sequence.block_table = table[:whole]
        self.pool.share(sequence.block_table)
        sequence.shared_blocks, sequence.computed = whole, match.tokens
        sequence.group.take_scores(match.scores, match.num_scores)
        self.waiting.remove(sequence)
        self.prefixes.start(sequence)
        while not self.pool.can_allocate(self._missing_blocks(sequence, sequence.remaining)):
            evicted = self.prefixes.evict()
            assert evicted, "a sequence that runs alone always fits"
        self._extend(sequence, sequence.remaining)
        if rest:
            # The source may be itself due in this step: then its own source has what is needed.
            due = {target: source for source, target in self.copies}
            self.copies.append((due.get(table[whole], table[whole]), sequence.block_table[whole]))
        self._count_admission(sequence)
        self.running.append(sequence)
        self.admitted.append(sequence)

    def _count_admission(self, sequence: Sequence) -> None:
        metrics = self.metrics
        again = max(0, sequence.recomputes_to - sequence.computed)
        metrics.num_recomputed_tokens_total += again
        sequence.recomputes_to = 0
        if sequence.cached_tokens is None:
            sequence.cached_tokens = sequence.computed
            metrics.prefix_cache_queries_total += len(sequence.request.prompt_token_ids)
            metrics.prefix_cache_hits_total += sequence.computed

    def _leave_batch(self, sequence: Sequence) -> None:
        self._padded.end(sequence)
        if not self.running:
            self.metrics.padded_tokens_total += self._padded.close(self.slots)
            self.slots = 0

    def _forecast(self) -> Forecast:
        forecast = Forecast(self.limits.block_size)
        for sequence in self.running:
            private = len(sequence.block_table) - sequence.shared_blocks
            forecast.add(to_come=self._tokens_to_come(sequence), private=private)
        return forecast

    def _tokens_to_come(self, sequence: Sequence) -> int:
        """As expected; half-way there the expectation is looked at again."""
        generated = sequence.num_generated
        if generated >= sequence.review_at:
            sequence.expected = self.lengths.expect(sequence.request.sampling, generated)
            sequence.review_at = (generated + sequence.expected + 1) // 2
        return max(1, sequence.expected - generated)

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.limits.block_size)

    def _missing_blocks(self, sequence: Sequence, count: int) -> int:
        return max(0, self._blocks(sequence.computed + count) - len(sequence.block_table))

    def _extend(self, sequence: Sequence, count: int) -> None:
        if missing := self._missing_blocks(sequence, count):
            sequence.block_table += self.pool.allocate(missing)

    def _drop_blocks(self, sequence: Sequence) -> None:
        self.pool.release(sequence.block_table)
        sequence.block_table = []
        sequence.computed = sequence.shared_blocks = 0
