"""Continuous batching: finished sequences leave and waiting ones enter at every step."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from collections.abc import Sequence as Many
from typing import NamedTuple, Protocol

from torch import Tensor

from executor.duplicates import Duplicates, digest
from executor.endings import ending, finish
from executor.metrics import EngineMetrics
from executor.out_of_memory import give_memory_back, is_out_of_memory
from executor.profile import NO_PROFILE, Part, StepProfile
from executor.recorder import StepWatcher
from executor.request import Choice, Completion, FinishReason, Request
from executor.sampling import SamplingRow, sample, token_logprobs
from executor.scheduler import Scheduler
from executor.sequence import Group, Sequence
from executor.settings import Limits, Scheduling
from executor.span import Span
from executor.speculation import right
from executor.step_time import StepTimes
from executor.text import Detokenizer, StopWatcher

OUT_OF_MEMORY = "out_of_memory"
"""`Completion.error_code` of a request that did not fit the memory alone."""
LOOKAHEAD = 4
"""Requests known ahead for each that can run, if not said otherwise."""


class StepModel(Protocol):
    """Computes the steps that the scheduler plans (`model.PackedModel`)."""

    def copy_blocks(self, copies: Many[tuple[int, int]]) -> None:
        """Copy cache blocks (from, to); all are read before any is written."""

    def forward(self, spans: Many[Span]) -> Tensor:
        """Logits [R, V] of the last `rows` positions of each span, in order."""


class Next(NamedTuple):
    """A token that comes next in a sequence, behind `ahead` guesses that were right."""

    sequence: Sequence
    token: int
    ahead: int


class Engine:
    """Runs requests through one model. Not for use by several threads at once.

    `clock` gives seconds from any fixed moment on, for requests that have a time limit.
    """

    def __init__(
        self,
        model: StepModel,
        tokenizer: Detokenizer,
        limits: Limits,
        scheduling: Scheduling | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits
        self.scheduling = scheduling or Scheduling()
        self.metrics = EngineMetrics()
        self.profile: StepProfile = NO_PROFILE
        self.watcher: StepWatcher | None = None
        self.times = StepTimes()
        self._model = model
        self._tokenizer = tokenizer
        self._clock = clock
        self._eos = tuple(tokenizer.eos_token_ids)
        self._begin()

    def run(
        self, requests: Iterable[Request], on_step: Callable[[], None] | None = None
    ) -> Iterator[Completion]:
        """Complete `requests`, in the order in which they end.

        Pulls only as many as a good order needs, so that memory does not depend on how many
        there are. `on_step` is called before every step; what it raises ends the run. A request
        that can never run comes back with `error` set.
        """
        source = self.profile.watch_source(iter(requests))
        try:
            while True:
                if on_step is not None:
                    on_step()
                yield from self._expire()
                yield from self._pull(source)
                with self.profile.measure(Part.SCHEDULING):
                    spans = self._scheduler.schedule()
                if not spans:
                    break
                self._observe(spans)
                tokens = self._compute(spans)
                with self.profile.measure(Part.COMMIT):
                    completions = self._shrink(spans) if tokens is None else self._commit(tokens)
                yield from completions
            self._scheduler.check_idle()
        finally:
            self.abort(None)
            self._begin()
            self.metrics.rest()

    def abort(self, request_ids: Collection[str] | None) -> None:
        """Forget these requests (None: all); no completion comes for them."""
        for request_id in list(self._groups) if request_ids is None else request_ids:
            group = self._groups.pop(request_id, None)
            if group is None:
                continue
            group.request_ids.remove(request_id)
            if not group.request_ids:
                for sequence in group.unfinished():
                    self._scheduler.remove(sequence)
                self._close(group)

    def _begin(self) -> None:
        """A run learns nothing from the one before it."""
        self._scheduler = Scheduler(self.limits, self.scheduling, self.metrics, self.times)
        self._duplicates = Duplicates()
        self._groups: dict[str, Group] = {}
        self._deadlines: dict[Group, float] = {}

    def _pull(self, source: Iterator[Request]) -> Iterator[Completion]:
        """Keep enough requests waiting; they come many at a time, as each time costs a sort."""
        waiting = self._scheduler.waiting
        if waiting.is_last or not self._has_room(0.75):
            return
        while self._has_room(1):
            request = next(source, None)
            if request is None:
                waiting.is_last = True
                waiting.reorder()
                return
            if reason := self._refusal(request):
                yield Completion(
                    request_id=request.id,
                    prompt_tokens=len(request.prompt_token_ids),
                    error=reason,
                )
                continue
            self.metrics.prompt_tokens_total += len(request.prompt_token_ids)
            if completion := self._add(request):
                yield completion

    def _has_room(self, share: float) -> bool:
        waiting, scheduling = self._scheduler.waiting, self.scheduling
        most = scheduling.max_num_waiting or LOOKAHEAD * self.limits.max_num_seqs
        return not waiting or (
            len(waiting) < share * most
            and waiting.num_tokens < share * scheduling.max_waiting_tokens
        )

    def _refusal(self, request: Request) -> str | None:
        prompt, asked = len(request.prompt_token_ids), request.sampling.max_tokens
        if prompt == 0:
            return "the prompt is empty"
        if prompt + asked > self.limits.max_model_len:
            return (
                f"{prompt} prompt tokens and max_tokens={asked} exceed "
                f"max_model_len={self.limits.max_model_len}"
            )
        return None

    def _add(self, request: Request) -> Completion | None:
        """Queue the request, or join it to an equal one; its completion if that has ended."""
        key = digest(request) if self.scheduling.shares_answers else None
        if key is not None and (answer := self._duplicates.answer(key)) is not None:
            completion = Completion(
                request_id=request.id,
                prompt_tokens=len(request.prompt_token_ids),
                choices=answer,
                cached_tokens=len(request.prompt_token_ids),
            )
            self._count_duplicate(completion)
            return completion
        group = self._duplicates.group(key) if key is not None else None
        if group is None:
            group = self._group(request, key)
        group.request_ids.append(request.id)
        self._groups[request.id] = group
        if request.priority < group.priority:
            group.priority = request.priority
            self._scheduler.waiting.reorder()
        return None

    def _group(self, request: Request, key: bytes | None) -> Group:
        sampling = request.sampling
        is_alike = key is not None and sampling.temperature == 0
        group = Group(
            request,
            width=1 if is_alike else sampling.n,
            digest=key,
            priority=request.priority,
        )
        self._duplicates.add(group)
        for index in range(group.width):
            self._scheduler.add(self._sequence(group, index))
        return group

    def _sequence(self, group: Group, index: int) -> Sequence:
        stops = group.request.sampling.stop
        sequence = Sequence(
            group=group,
            index=index,
            tokens=list(group.request.prompt_token_ids),
            watcher=StopWatcher(self._tokenizer.stream(), stops) if stops else None,
        )
        group.sequences.append(sequence)
        return sequence

    def _expire(self) -> list[Completion]:
        """End what has run for longer than it may."""
        if not self._deadlines:
            return []
        now = self._clock()
        late = [group for group, deadline in self._deadlines.items() if deadline <= now]
        completions = []
        for group in late:
            for sequence in group.unfinished():
                keep = sequence.num_generated
                choice = finish(sequence, FinishReason.TIMEOUT, self._tokenizer, keep=keep)
                completions += self._end(sequence, choice)
        return completions

    def _compute(self, spans: Many[Span]) -> list[Next] | None:
        """The next tokens of all that catch up; None if the step did not fit the memory."""
        started = time.perf_counter()
        is_copied = False
        try:
            if self._scheduler.copies:
                self._model.copy_blocks(self._scheduler.copies)
            is_copied = True
            with self.profile.measure(Part.MODEL):
                logits = self._model.forward(spans)
            with self.profile.measure(Part.SAMPLING):
                tokens = self._sample(logits, spans)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        else:
            self._learn(spans, time.perf_counter() - started)
            return tokens
        # Only here has the error let go of the tensors that its frames held.
        self._scheduler.undo(spans, is_copied=is_copied)
        give_memory_back()
        return None

    def _learn(self, spans: Many[Span], seconds: float) -> None:
        self._scheduler.ladder.succeed(spans)
        positions, attended = (sum(s.positions for s in spans), sum(s.attended for s in spans))
        self.times.observe(positions=positions, attended=attended, seconds=seconds)

    def _shrink(self, spans: Many[Span]) -> list[Completion]:
        """Go down the ladder; the completions of the request that cannot run even alone."""
        metrics = self.metrics
        metrics.num_out_of_memory_total += 1
        metrics.num_recomputed_tokens_total += sum(span.count for span in spans)
        culprit = self._scheduler.ladder.fail(spans)
        if culprit is None:
            return []
        context = len(culprit.tokens)
        return self._fail(
            culprit.group,
            f"The request does not fit the worker's memory, not even alone, with {context:,}"
            " tokens of prompt and answer: shorten it, or give the worker more memory.",
        )

    def _fail(self, group: Group, reason: str) -> list[Completion]:
        """End all that the group is to answer, as memory is short."""
        for sequence in group.unfinished():
            self._scheduler.remove(sequence)
        self._close(group)
        for request_id in group.request_ids:
            self._groups.pop(request_id, None)
        prompt = len(group.request.prompt_token_ids)
        return [
            Completion(
                request_id=request_id,
                prompt_tokens=prompt,
                error=reason,
                error_code=OUT_OF_MEMORY,
            )
            for request_id in group.request_ids
        ]

    def _sample(self, logits: Tensor, spans: Many[Span]) -> list[Next]:
        """The next tokens of each sequence that catches up: one, and one for each right guess."""
        rows = [(span, ahead) for span in spans for ahead in range(span.rows)]
        if not rows:
            return []
        tokens = sample(logits, [self._row(span.sequence, ahead) for span, ahead in rows])
        found = {i: Next(rows[i][0].sequence, tokens[i], rows[i][1]) for i in right(rows, tokens)}
        wanted = [
            (i, next_, count)
            for i, next_ in found.items()
            if (count := next_.sequence.request.sampling.logprobs) is not None
        ]
        if wanted:
            entries = token_logprobs(
                logits[[i for i, _, _ in wanted]],
                [next_.token for _, next_, _ in wanted],
                [count for _, _, count in wanted],
            )
            for (_, next_, _), entry in zip(wanted, entries, strict=True):
                next_.sequence.logprobs.append(entry)
        return list(found.values())

    def _row(self, sequence: Sequence, ahead: int = 0) -> SamplingRow:
        """For the token that follows `ahead` guesses."""
        params = sequence.request.sampling
        position = sequence.num_generated + ahead
        too_early = position < params.min_tokens and not params.ignore_eos
        return SamplingRow(
            params=params,
            choice=sequence.index,
            position=position,
            banned=self._eos if too_early else (),
        )

    def _commit(self, found: Many[Next]) -> list[Completion]:
        """Append the sampled tokens, and let go of what has ended."""
        completions = []
        ended: Sequence | None = None
        for sequence, token, ahead in found:
            if sequence is ended:
                continue
            if ahead:
                self._scheduler.accept(sequence)
            self.metrics.generation_tokens_total += 1
            sequence.tokens.append(token)
            choice = ending(sequence, token, self._tokenizer)
            if choice is not None:
                ended = sequence
                self._scheduler.lengths.observe(sequence.request.sampling, choice.generated_tokens)
                completions += self._end(sequence, choice)
        return completions

    def _end(self, sequence: Sequence, choice: Choice) -> list[Completion]:
        """Let go of a sequence; the completions if its group has ended with it."""
        group = sequence.group
        self._scheduler.remove(sequence)
        group.choices.append(choice)
        if not group.is_complete:
            return []
        self._close(group)
        completions = group.completions()
        for completion in completions:
            self._groups.pop(completion.request_id, None)
        for completion in completions[1:]:
            self._count_duplicate(completion)
        return completions

    def _close(self, group: Group) -> None:
        self._duplicates.remove(group)
        self._deadlines.pop(group, None)

    def _count_duplicate(self, completion: Completion) -> None:
        tokens = completion.prompt_tokens + completion.completion_tokens
        self.metrics.num_deduplicated_requests_total += 1
        self.metrics.deduplicated_tokens_total += tokens

    def _observe(self, spans: Many[Span]) -> None:
        scheduler, metrics = self._scheduler, self.metrics
        for sequence in scheduler.admitted:
            self._start_clock(sequence.group)
        tokens = sum(span.positions for span in spans)
        metrics.spec_decode_num_draft_tokens_total += sum(len(span.draft) for span in spans)
        self.profile.step(tokens)
        if self.watcher is not None:
            self.watcher.observe(spans, scheduler)
        metrics.observe_step(
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            slots=scheduler.slots,
            kv_usage=scheduler.pool.num_used / scheduler.pool.num_blocks,
            tokens=tokens,
        )

    def _start_clock(self, group: Group) -> None:
        seconds = group.request.timeout_seconds or self.scheduling.request_timeout_seconds
        if seconds is not None:
            self._deadlines.setdefault(group, self._clock() + seconds)
