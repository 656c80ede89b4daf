"""An engine that answers every request with its own prompt, at once: what is left is everything
around the engine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from batchjobs.models import Model
from batchjobs.worker.engines import LoadedModel
from executor.fake import ByteTokenizer
from executor.metrics import EngineMetrics
from executor.request import Choice, Completion, FinishReason, Request
from executor.settings import Limits

STEP_REQUESTS = 64


class EchoEngine:
    """A `Runner`. A step, after which the worker looks at the world, is 64 requests."""

    limits = Limits(
        max_num_seqs=STEP_REQUESTS,
        max_num_batched_tokens=8192,
        max_model_len=16_384,
        num_blocks=1024,
        block_size=16,
    )

    def __init__(self) -> None:
        self.metrics = EngineMetrics()
        self._aborted: set[str] = set()

    def run(
        self, requests: Iterable[Request], on_step: Callable[[], None] | None = None
    ) -> Iterator[Completion]:
        for number, request in enumerate(requests):
            if on_step is not None and number % STEP_REQUESTS == 0:
                on_step()
            if request.id not in self._aborted:
                yield self._echo(request)
        self._aborted.clear()

    def abort(self, request_ids: Collection[str] | None) -> None:
        self._aborted |= set(request_ids or ())

    def _echo(self, request: Request) -> Completion:
        tokens = request.prompt_token_ids
        self.metrics.prompt_tokens_total += len(tokens)
        self.metrics.generation_tokens_total += len(tokens)
        self.metrics.computed_tokens_total += 2 * len(tokens)
        choice = Choice(
            index=0,
            token_ids=tokens,
            text=bytes(token for token in tokens if token < 256).decode(errors="replace"),
            finish_reason=FinishReason.STOP,
            generated_tokens=len(tokens),
        )
        return Completion(
            request_id=request.id,
            prompt_tokens=len(tokens),
            choices=(choice,),
        )


class EchoEngines:
    """An `EngineSource`."""

    def load(self, model: Model) -> LoadedModel:
        return LoadedModel(engine=EchoEngine(), tokenizer=ByteTokenizer(), fingerprint="fp_echo")
