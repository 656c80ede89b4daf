"""Embeddings: texts in, vectors out, in steps of about equally many tokens.

Requests are looked at a window at a time. Within it, equal ones are computed once, and the rest
goes through by length, longest first, so that a step is texts of about one length and attention
has few and large batches. A window is finished before the next is read: nothing waits for long,
and memory does not depend on how many requests there are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Protocol

from executor.embedding.batch import TextBatch
from executor.metrics import EngineMetrics
from executor.profile import NO_PROFILE, Part, StepProfile
from executor.recorder import StepWatcher
from executor.request import Completion, PoolingParams, Request
from executor.roofline import StepWork
from executor.settings import Limits

WINDOW_STEPS = 32
"""Steps that a window has work for; its texts are few or short enough to wait in memory."""


class VectorModel(Protocol):
    """Computes the steps (`build.EmbeddingModel`)."""

    def embed(self, batch: TextBatch, wanted: Sequence[PoolingParams]) -> list[bytes | None]:
        """The vector of each text as little-endian float32; None where it is not finite."""


class _Text:
    """Requests whose vector is the same."""

    __slots__ = ("pooling", "request_ids", "tokens")

    def __init__(self, tokens: tuple[int, ...], pooling: PoolingParams) -> None:
        self.tokens = tokens
        self.pooling = pooling
        self.request_ids: list[str] = []


class EmbeddingEngine:
    """Runs requests with `pooling` through one model. Not for use by several threads at once."""

    def __init__(self, model: VectorModel, limits: Limits, *, causal: bool = False) -> None:
        """`causal` matters to the account of work only."""
        self.limits = limits
        self.metrics = EngineMetrics()
        self.profile: StepProfile = NO_PROFILE
        self.watcher: StepWatcher | None = None
        self._model = model
        self._causal = causal
        self._waiting: dict[tuple[tuple[int, ...], PoolingParams], _Text] = {}

    def run(
        self, requests: Iterable[Request], on_step: Callable[[], None] | None = None
    ) -> Iterator[Completion]:
        """Complete `requests`, in the order in which they end.

        `on_step` is called before every step; what it raises ends the run. A request that can
        never run comes back with `error` set.
        """
        source = self.profile.watch_source(iter(requests))
        try:
            while True:
                if on_step is not None:
                    on_step()
                yield from self._fill_window(source)
                if not self._waiting:
                    break
                yield from self._drain_window(on_step)
        finally:
            self._waiting.clear()
            self.metrics.rest()

    def abort(self, request_ids: Collection[str] | None) -> None:
        """Forget these requests (None: all); no completion comes for them."""
        if request_ids is None:
            self._waiting.clear()
            return
        for key, text in list(self._waiting.items()):
            text.request_ids = [name for name in text.request_ids if name not in request_ids]
            if not text.request_ids:
                del self._waiting[key]

    def _fill_window(self, source: Iterator[Request]) -> Iterator[Completion]:
        most_tokens = WINDOW_STEPS * self.limits.max_num_batched_tokens
        most_texts = WINDOW_STEPS * self.limits.max_num_seqs
        tokens = 0
        while tokens < most_tokens and len(self._waiting) < most_texts:
            request = next(source, None)
            if request is None:
                return
            if refusal := self._refusal(request):
                yield refusal
                continue
            tokens += len(request.prompt_token_ids)
            self.metrics.prompt_tokens_total += len(request.prompt_token_ids)
            self._add(request)

    def _refusal(self, request: Request) -> Completion | None:
        length, longest = len(request.prompt_token_ids), self.limits.max_model_len
        if request.pooling is None:
            error = "the model gives embeddings and generates no text"
        elif length == 0:
            error = "the input is empty"
        elif length > longest:
            error = f"{length} tokens exceed max_model_len={longest}"
        else:
            return None
        return Completion(request_id=request.id, prompt_tokens=length, error=error)

    def _add(self, request: Request) -> None:
        pooling = request.pooling or PoolingParams()
        key = request.prompt_token_ids, pooling
        if key in self._waiting:
            self.metrics.num_deduplicated_requests_total += 1
            self.metrics.deduplicated_tokens_total += len(request.prompt_token_ids)
        else:
            self._waiting[key] = _Text(*key)
        self._waiting[key].request_ids.append(request.id)

    def _drain_window(self, on_step: Callable[[], None] | None) -> Iterator[Completion]:
        with self.profile.measure(Part.SCHEDULING):
            steps = self._steps()
        for step in steps:
            if on_step is not None:
                on_step()
            # What was aborted since the steps were planned is not waiting any more.
            texts = [text for text in step if (text.tokens, text.pooling) in self._waiting]
            if not texts:
                continue
            yield from self._run_step(texts)

    def _steps(self) -> list[list[_Text]]:
        """The window's texts, longest first, as many at once as the limits allow."""
        steps: list[list[_Text]] = []
        room = 0
        for text in sorted(self._waiting.values(), key=lambda text: -len(text.tokens)):
            if len(text.tokens) > room or len(steps[-1]) == self.limits.max_num_seqs:
                steps.append([])
                room = self.limits.max_num_batched_tokens
            steps[-1].append(text)
            room -= len(text.tokens)
        return steps

    def _run_step(self, texts: Sequence[_Text]) -> Iterator[Completion]:
        batch = TextBatch.of([text.tokens for text in texts])
        self._observe(batch)
        with self.profile.measure(Part.MODEL):
            vectors = self._model.embed(batch, [text.pooling for text in texts])
        with self.profile.measure(Part.COMMIT):
            completions = []
            for text, vector in zip(texts, vectors, strict=True):
                del self._waiting[text.tokens, text.pooling]
                completions += _completions(text, vector)
        yield from completions

    def _observe(self, batch: TextBatch) -> None:
        count = len(batch.texts)
        positions = sum(group.count * group.length for group in batch.groups)
        self.profile.step(positions)
        if self.watcher is not None:
            self.watcher.observe_texts(count, self._work(batch, positions))
        self.metrics.observe_step(
            running=count,
            waiting=len(self._waiting) - count,
            slots=count,
            kv_usage=0.0,
            tokens=positions,
        )

    def _work(self, batch: TextBatch, positions: int) -> StepWork:
        attended = sum(
            group.count
            * (group.length * (group.length + 1) // 2 if self._causal else group.length**2)
            for group in batch.groups
        )
        return StepWork(positions=positions, rows=0, attended=attended, kv_tokens=0)


def _completions(text: _Text, vector: bytes | None) -> list[Completion]:
    """One for each request; all but the first were spared their whole text."""
    length = len(text.tokens)
    error = None if vector is not None else "the model's vector for it is not finite"
    return [
        Completion(
            request_id=request_id,
            prompt_tokens=length,
            embedding=vector,
            cached_tokens=length if place else 0,
            error=error,
        )
        for place, request_id in enumerate(text.request_ids)
    ]
