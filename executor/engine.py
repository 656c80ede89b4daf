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
from executor.masks import Masks
from executor.metrics import EngineMetrics
from executor.profile import NO_PROFILE, Part, StepProfile
from executor.recorder import StepWatcher
from executor.request import Choice, Completion, FinishReason, Request
from executor.sampling import SamplingRow, sample, token_logprobs
from executor.scheduler import Scheduler, Span
from executor.sequence import Group, Sequence
from executor.settings import Limits, Scheduling
from executor.text import Detokenizer, StopWatcher

LOOKAHEAD = 4
"""Requests known ahead for each that can run, if not said otherwise."""


class StepModel(Protocol):
    """Computes the steps that the scheduler plans (`model.PackedModel`)."""

    def copy_blocks(self, copies: Many[tuple[int, int]]) -> None:
        """Copy cache blocks (from, to); all are read before any is written."""

    def forward(self, spans: Many[Span]) -> Tensor:
        """Logits [R, V] of the last token of each span that catches up, in order."""


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
                if self._scheduler.copies:
                    self._model.copy_blocks(self._scheduler.copies)
                ready = [span.sequence for span in spans if span.catches_up]
                masks = self._constraints.begin_masks(ready)
                with self.profile.measure(Part.MODEL):
                    logits = self._model.forward(spans)
                with self.profile.measure(Part.SAMPLING):
                    tokens = self._sample(logits, ready, masks)
                with self.profile.measure(Part.COMMIT):
                    completions = self._commit(ready, tokens)
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
        self._scheduler = Scheduler(self.limits, self.scheduling, self.metrics)
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
        most = share * (scheduling.max_num_waiting or LOOKAHEAD * self.limits.max_num_seqs)
        if len(self._constraints) >= max(1, most):
            return False
        return not waiting or (
            len(waiting) < most and waiting.num_tokens < share * scheduling.max_waiting_tokens
        )

    def _refusal(self, request: Request) -> str | None:
        prompt, asked = len(request.prompt_token_ids), request.sampling.max_tokens
        if prompt == 0:
            return "the prompt is empty"
        if request.sampling.grammar is not None and not self._constraints.knows_grammars:
            return "this engine knows no grammars"
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
                yield from self._fail(group, result)
            else:
                self._begin_group(group, result)

    def _fail(self, group: Group, error: GrammarError) -> list[Completion]:
        """Let go of a group whose grammar cannot be followed."""
        completions = group.failures(str(error), grammar_part=error.part)
        self.abort(list(group.request_ids))
        return completions

    def _sequence(self, group: Group, index: int, grammar: CompiledGrammar | None) -> Sequence:
        stops = group.request.sampling.stop
        sequence = Sequence(
            group=group,
            index=index,
            tokens=list(group.request.prompt_token_ids),
            watcher=StopWatcher(self._tokenizer.stream(), stops) if stops else None,
            matcher=None if grammar is None else grammar.matcher(),
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

    def _sample(self, logits: Tensor, ready: Many[Sequence], masks: Masks | None) -> list[int]:
        """The next token of each sequence; notes log-probabilities where asked for."""
        if not ready:
            return []
        wanted = [
            (i, count)
            for i, sequence in enumerate(ready)
            if (count := sequence.request.sampling.logprobs) is not None
        ]
        masked = logits if masks is None else masks.apply(logits, keep=bool(wanted))
        tokens = sample(masked, [self._row(sequence) for sequence in ready])
        if wanted:
            rows = [i for i, _ in wanted]
            entries = token_logprobs(
                logits[rows], [tokens[i] for i in rows], [c for _, c in wanted]
            )
            for i, entry in zip(rows, entries, strict=True):
                ready[i].logprobs.append(entry)
        return tokens

    def _row(self, sequence: Sequence) -> SamplingRow:
        params = sequence.request.sampling
        # Where there is a grammar, the mask sees to it.
        is_free = sequence.matcher is None and not params.ignore_eos
        too_early = is_free and sequence.num_generated < params.min_tokens
        return SamplingRow(
            params=params,
            choice=sequence.index,
            position=sequence.num_generated,
            banned=self._eos if too_early else (),
        )

    def _commit(self, ready: Many[Sequence], tokens: Many[int]) -> list[Completion]:
        """Append the sampled tokens, and let go of what has ended."""
        completions = []
        for sequence, token in zip(ready, tokens, strict=True):
            if not sequence.group.request_ids:
                continue  # another choice of the request has failed in this step
            try:
                choice = self._append(sequence, token)
            except GrammarError as error:
                completions += self._fail(sequence.group, error)
                continue
            if choice is not None:
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
        tokens = sum(span.count for span in spans)
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
