"""Continuous batching: finished sequences leave and waiting ones enter at every step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from collections.abc import Sequence as Many
from typing import Protocol

from torch import Tensor

from executor.metrics import EngineMetrics
from executor.profile import NO_PROFILE, Part, StepProfile
from executor.recorder import StepWatcher
from executor.request import Choice, Completion, FinishReason, Request
from executor.sampling import SamplingRow, sample, token_logprobs
from executor.scheduler import Scheduler, Span
from executor.sequence import Group, Sequence
from executor.settings import Limits
from executor.text import Detokenizer, StopWatcher


class StepModel(Protocol):
    """Computes the steps that the scheduler plans (`model.PackedModel`)."""

    def forward(self, spans: Many[Span]) -> Tensor:
        """Logits [R, V] of the last token of each span that catches up, in order."""


class Engine:
    """Runs requests through one model. Not for use by several threads at once."""

    def __init__(self, model: StepModel, tokenizer: Detokenizer, limits: Limits) -> None:
        self.limits = limits
        self.metrics = EngineMetrics()
        self.profile: StepProfile = NO_PROFILE
        self.watcher: StepWatcher | None = None
        self._model = model
        self._tokenizer = tokenizer
        self._scheduler = Scheduler(limits)
        self._eos = tuple(tokenizer.eos_token_ids)

    def run(
        self, requests: Iterable[Request], on_step: Callable[[], None] | None = None
    ) -> Iterator[Completion]:
        """Complete `requests`, in the order in which they end.

        Pulls only as many as keep the next steps full, so that memory does not depend on how
        many there are. `on_step` is called before every step; what it raises ends the run. A
        request that can never run comes back with `error` set.
        """
        source = self.profile.watch_source(iter(requests))
        try:
            while True:
                if on_step is not None:
                    on_step()
                yield from self._pull(source)
                with self.profile.measure(Part.SCHEDULING):
                    spans = self._scheduler.schedule()
                if not spans:
                    break
                self._observe(spans)
                with self.profile.measure(Part.MODEL):
                    logits = self._model.forward(spans)
                ready = [span.sequence for span in spans if span.catches_up]
                with self.profile.measure(Part.SAMPLING):
                    tokens = self._sample(logits, ready)
                with self.profile.measure(Part.COMMIT):
                    completions = self._commit(ready, tokens)
                yield from completions
            self._scheduler.check_idle()
        finally:
            self.abort(None)
            self.metrics.rest()

    def abort(self, request_ids: Collection[str] | None) -> None:
        """Forget these requests (None: all); no completion comes for them."""
        for sequence in (*self._scheduler.running, *self._scheduler.waiting):
            if request_ids is None or sequence.request.id in request_ids:
                self._scheduler.remove(sequence)

    def _pull(self, source: Iterator[Request]) -> Iterator[Completion]:
        """Keep one batch of requests waiting behind the running one."""
        while len(self._scheduler.waiting) < self.limits.max_num_seqs:
            request = next(source, None)
            if request is None:
                return
            if reason := self._refusal(request):
                yield Completion(
                    request_id=request.id,
                    prompt_tokens=len(request.prompt_token_ids),
                    error=reason,
                )
                continue
            group = Group(request)
            self._scheduler.add(self._sequence(group, 0))
            self.metrics.prompt_tokens_total += len(request.prompt_token_ids)

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

    def _sample(self, logits: Tensor, ready: Many[Sequence]) -> list[int]:
        """The next token of each sequence; notes log-probabilities where asked for."""
        if not ready:
            return []
        tokens = sample(logits, [self._row(sequence) for sequence in ready])
        wanted = [
            (i, count)
            for i, sequence in enumerate(ready)
            if (count := sequence.request.sampling.logprobs) is not None
        ]
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
        too_early = sequence.num_generated < params.min_tokens and not params.ignore_eos
        return SamplingRow(
            params=params,
            choice=sequence.index,
            position=sequence.num_generated,
            banned=self._eos if too_early else (),
        )

    def _commit(self, ready: Many[Sequence], tokens: Many[int]) -> list[Completion]:
        """Append the sampled tokens, fork after prefill, let go of what has ended."""
        completions = []
        for sequence, token in zip(ready, tokens, strict=True):
            group = sequence.group
            if len(group.sequences) < group.request.sampling.n:
                children = [self._sequence(group, i) for i in range(1, group.request.sampling.n)]
                self._scheduler.fork(sequence, children)
            sequence.tokens.append(token)
            self.metrics.generation_tokens_total += 1
            choice = self._ending(sequence, token)
            if choice is None:
                continue
            self._scheduler.remove(sequence)
            if completion := group.end(choice):
                completions.append(completion)
        return completions

    def _ending(self, sequence: Sequence, token: int) -> Choice | None:
        """The finished answer if `token` is its last."""
        params = sequence.request.sampling
        generated = sequence.num_generated
        if token in self._tokenizer.eos_token_ids and not params.ignore_eos:
            return self._choice(sequence, FinishReason.STOP, keep=generated - 1)
        if sequence.watcher is not None:
            watching = generated >= params.min_tokens
            cut = sequence.watcher.step(token, watching=watching)
            if cut is not None:
                keep = sequence.watcher.tokens_before(cut)
                text = sequence.watcher.text[:cut]
                return self._choice(sequence, FinishReason.STOP, keep=keep, text=text)
        if generated >= params.max_tokens:
            return self._choice(sequence, FinishReason.LENGTH, keep=generated)
        return None

    def _choice(
        self, sequence: Sequence, reason: FinishReason, *, keep: int, text: str | None = None
    ) -> Choice:
        token_ids = tuple(sequence.generated[:keep])
        has_logprobs = sequence.request.sampling.logprobs is not None
        return Choice(
            index=sequence.index,
            token_ids=token_ids,
            text=self._tokenizer.decode(token_ids) if text is None else text,
            finish_reason=reason,
            generated_tokens=sequence.num_generated,
            logprobs=tuple(sequence.logprobs[:keep]) if has_logprobs else None,
        )

    def _observe(self, spans: Many[Span]) -> None:
        pool = self._scheduler.pool
        self.metrics.num_preemptions_total = self._scheduler.num_preemptions
        self.metrics.recomputed_tokens_total = self._scheduler.num_recomputed
        tokens = sum(span.count for span in spans)
        self.profile.step(tokens)
        if self.watcher is not None:
            self.watcher.observe(spans, self._scheduler)
        self.metrics.observe_step(
            running=len(self._scheduler.running),
            waiting=len(self._scheduler.waiting),
            kv_usage=pool.num_used / pool.num_blocks,
            tokens=tokens,
        )
