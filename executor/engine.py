"""Continuous batching: finished sequences leave and waiting ones enter at every step."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from collections.abc import Sequence as Many
from typing import Protocol

from torch import Tensor

from executor.constraints import Constraints, advance
from executor.duplicates import Duplicates, digest
from executor.endings import ending, finish
from executor.grammar import CompiledGrammar, GrammarError, GrammarLibrary
from executor.history import history_of
from executor.metrics import EngineMetrics
from executor.next_tokens import Next, next_tokens
from executor.out_of_memory import give_memory_back, is_out_of_memory
from executor.profile import NO_PROFILE, Part, StepProfile
from executor.prompt_scores import score_prompts
from executor.recorder import StepWatcher
from executor.refusal import refusal
from executor.request import Choice, Completion, FinishReason, Request, SamplingParams
from executor.scheduler import Scheduler
from executor.sequence import Group, Sequence
from executor.settings import Limits, Scheduling
from executor.span import Span
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

    def logits_at(self, rows: Many[int]) -> Tensor:
        """Logits [R, V] at these rows of the last step's packed row."""


class Engine:
    """Runs requests through one model. Not for use by several threads at once.

    Without a `library` it refuses requests that have a grammar. `clock` gives seconds from any
    fixed moment on, for requests that have a time limit.
    """

    def __init__(
        self,
        model: StepModel,
        tokenizer: Detokenizer,
        limits: Limits,
        scheduling: Scheduling | None = None,
        *,
        library: GrammarLibrary | None = None,
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
        self._constraints = Constraints(library, self._eos)
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
                yield from self._release()
                with self.profile.measure(Part.SCHEDULING):
                    spans = self._scheduler.schedule()
                if not spans:
                    if self._constraints.wait():
                        continue
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
            if reason := refusal(request, self.limits, self._constraints.knows_grammars):
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
        most = share * (scheduling.max_num_waiting or LOOKAHEAD * self.limits.max_num_seqs)
        if len(self._constraints) >= max(1, most):
            return False
        return not waiting or (
            len(waiting) < most and waiting.num_tokens < share * scheduling.max_waiting_tokens
        )

    def _add(self, request: Request) -> Completion | None:
        """Queue the request, or join it to an equal one; its completion if that has ended."""
        key = digest(request) if self.scheduling.shares_answers else None
        if key is not None and (answer := self._duplicates.answer(key)) is not None:
            completion = Completion(
                request_id=request.id,
                prompt_tokens=len(request.prompt_token_ids),
                choices=answer.choices,
                prompt_logprobs=answer.prompt_logprobs,
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
        is_alike = key is not None and (sampling.temperature == 0 or not sampling.max_tokens)
        group = Group(
            request,
            width=1 if is_alike else sampling.n,
            digest=key,
            priority=request.priority,
        )
        self._duplicates.add(group)
        if sampling.grammar is None:
            self._begin_group(group)
        else:
            self._constraints.hold(group)
        return group

    def _begin_group(self, group: Group, grammar: CompiledGrammar | None = None) -> None:
        for index in range(group.width):
            self._scheduler.add(self._sequence(group, index, grammar))

    def _release(self) -> Iterator[Completion]:
        """Let those wait whose grammars are compiled, and refuse those whose are none."""
        for group, result in self._constraints.released():
            if isinstance(result, GrammarError):
                yield from self._fail(group, str(result), grammar_part=result.part)
            else:
                self._begin_group(group, result)

    def _fail(
        self,
        group: Group,
        error: str,
        *,
        error_code: str | None = None,
        grammar_part: str | None = None,
    ) -> list[Completion]:
        """End all that the group is to answer, with an error."""
        completions = group.failures(error, error_code=error_code, grammar_part=grammar_part)
        self.abort(list(group.request_ids))
        return completions

    def _sequence(self, group: Group, index: int, grammar: CompiledGrammar | None) -> Sequence:
        sampling = group.request.sampling
        sequence = Sequence(
            group=group,
            index=index,
            tokens=list(group.request.prompt_token_ids),
            watcher=self._watcher(sampling) if sampling.stop else None,
            history=history_of(group.request),
            matcher=None if grammar is None else grammar.matcher(),
        )
        group.sequences.append(sequence)
        return sequence

    def _watcher(self, sampling: SamplingParams) -> StopWatcher:
        keeps = sampling.include_stop_str_in_output
        return StopWatcher(self._tokenizer.stream(), sampling.stop, keeps=keeps)

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
                with self.profile.measure(Part.MODEL):
                    self._model.copy_blocks(self._scheduler.copies)
            is_copied = True
            looked_at = [span.sequence for span in spans for _ in range(span.rows)]
            masks = self._constraints.begin_masks(looked_at)
            with self.profile.measure(Part.MODEL):
                logits = self._model.forward(spans)
            with self.profile.measure(Part.SAMPLING):
                score_prompts(spans, self._model, logits.shape[-1])
                tokens = next_tokens(logits, spans, self._eos, masks)
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
            "The request does not fit the worker's memory, not even alone, with"
            f" {context:,} tokens of prompt and answer: shorten it, or give the worker more"
            " memory.",
            error_code=OUT_OF_MEMORY,
        )

    def _commit(self, found: Many[Next]) -> list[Completion]:
        """Append the sampled tokens, and let go of what has ended."""
        completions = []
        ended: Sequence | None = None
        for sequence, token, ahead in found:
            # Or another choice of the request has failed in this step.
            if sequence is ended or not sequence.group.request_ids:
                continue
            if sequence.request.sampling.max_tokens == 0:
                nothing = finish(sequence, FinishReason.LENGTH, self._tokenizer, keep=0)
                completions += self._end(sequence, nothing)
                continue
            if ahead:
                self._scheduler.accept(sequence)
            try:
                choice = self._append(sequence, token)
            except GrammarError as error:
                completions += self._fail(sequence.group, str(error), grammar_part=error.part)
                continue
            if choice is not None:
                ended = sequence
                self._scheduler.lengths.observe(sequence.request.sampling, choice.generated_tokens)
                completions += self._end(sequence, choice)
        return completions

    def _append(self, sequence: Sequence, sampled: int) -> Choice | None:
        """The answer if it ends with the token, or with one that its grammar forces behind it."""
        for number, token in enumerate(advance(sequence, sampled)):
            sequence.tokens.append(token)
            self.metrics.generation_tokens_total += 1
            self.metrics.forced_tokens_total += number > 0
            choice = ending(sequence, token, self._tokenizer)
            if choice is not None:
                return choice
        return None

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
        self._constraints.drop(group)
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
