"""Models of the catalogue as engines that are ready to run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from batchjobs.endpoints.base import EmbeddingFacts, ModelContext, Tokenizer
from batchjobs.errors import ModelError
from batchjobs.model_defaults import ModelDefaults
from batchjobs.models import Model
from batchjobs.settings import Settings
from batchjobs.worker.fingerprints import fingerprint
from batchjobs.worker.model_sampling import in_words, model_sampling
from executor.metrics import EngineMetrics
from executor.profile import Profile
from executor.recorder import StepWatcher
from executor.request import Completion, Request
from executor.roofline import ModelCost
from executor.settings import EngineSettings, Limits
from executor.threads import yield_when_idle

if TYPE_CHECKING:
    from executor.device import DevicePlan
    from executor.engine import Engine


class Runner(Protocol):
    """The part of `executor.engine.Engine` that a worker uses."""

    watcher: StepWatcher | None

    @property
    def limits(self) -> Limits: ...

    @property
    def metrics(self) -> EngineMetrics: ...

    def run(
        self, requests: Iterable[Request], on_step: Callable[[], None] | None = None
    ) -> Iterator[Completion]: ...

    def abort(self, request_ids: Collection[str] | None) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A running model. `sampling` is what lines leave out that the model has a value of its own
    for; `decisions` say in words what was chosen for this machine, and why; `cost` and `device`
    are None for one that computes nothing, `quantization` for one whose weights are as its
    checkpoint has them."""

    engine: Runner
    tokenizer: Tokenizer
    fingerprint: str
    sampling: Mapping[str, float] = field(default_factory=dict)
    decisions: tuple[tuple[str, str], ...] = ()
    cost: ModelCost | None = None
    device: DevicePlan | None = None
    profile: Profile | None = None
    embedding: EmbeddingFacts | None = None
    """None for a model that generates text."""
    quantization: str | None = None

    def called(self, name: str) -> str:
        """The name in what is told of a run."""
        return name if self.quantization is None else f"{name} ({self.quantization})"

    def context(self, name: str, *, ignore_unknown: bool = False) -> ModelContext:
        """For lines that ask for the model as `name`."""
        return ModelContext(
            name=name,
            tokenizer=self.tokenizer,
            max_model_len=self.engine.limits.max_model_len,
            fingerprint=self.fingerprint,
            sampling=self.sampling,
            ignore_unknown=ignore_unknown,
            embedding=self.embedding,
        )


class EngineSource(Protocol):
    def load(self, model: Model) -> LoadedModel:
        """Raises ModelError with the reason when it cannot run here."""


class CheckpointEngines:
    """Loads with torch and transformers, which are imported at the first load. `profiled` engines
    measure where the time of their steps goes."""

    def __init__(self, settings: Settings, *, profiled: bool = False) -> None:
        self._settings = settings
        self._profiled = profiled

    def load(self, model: Model) -> LoadedModel:
        yield_when_idle()
        from batchjobs.worker.embedders import load_embedder
        from executor.build import build_engine
        from executor.errors import EngineError
        from executor.generation import own_sampling
        from executor.loading import Checkpoint

        embedder = load_embedder(model, self._settings, profiled=self._profiled)
        if embedder is not None:
            return embedder
        defaults = ModelDefaults.of(model)
        settings = engine_settings(self._settings)
        checkpoint = Checkpoint(
            source=model.source, revision=model.revision, chat_template=defaults.chat_template
        )
        try:
            ready = build_engine(
                checkpoint,
                replace(settings, max_model_len=defaults.max_model_len or settings.max_model_len),
                profiled=self._profiled,
            )
            own = own_sampling(checkpoint)
        except EngineError as error:
            raise ModelError(str(error)) from error
        sampling = model_sampling(self._settings, own, defaults.sampling)
        device, limits = ready.device, ready.engine.limits
        return LoadedModel(
            engine=ready.engine,
            tokenizer=ready.tokenizer,
            fingerprint=fingerprint(
                model, self._settings, ready.parts, quantization=self._settings.quantization
            ),
            quantization=self._settings.quantization,
            sampling=sampling,
            cost=ready.cost,
            device=device,
            profile=ready.profile,
            decisions=(
                ("device", f"{device.device} ({device.device_reason})"),
                ("dtype", device.types.described),
                *_quantization(self._settings.quantization, ready.quantization_error),
                ("threads", f"{device.num_threads} ({device.threads_reason})"),
                ("attention", ready.attention_backend),
                *reproducible_decision(self._settings),
                ("sampling", in_words(sampling)),
                ("max_model_len", f"{limits.max_model_len:,} tokens"),
                ("max_num_seqs", f"{limits.max_num_seqs:,}"),
                ("max_num_batched_tokens", _step_size(ready.engine)),
                ("KV cache", f"{limits.num_blocks:,} blocks of {limits.block_size} tokens"),
            ),
        )


class KeptEngines:
    """Keeps the last engine between runs, and lets go of it before loading another."""

    def __init__(self, source: EngineSource) -> None:
        self._source = source
        self._kept: tuple[_Weights, LoadedModel] | None = None

    def load(self, model: Model) -> LoadedModel:
        weights = (model.source, model.revision, ModelDefaults.of(model))
        if self._kept is None or self._kept[0] != weights:
            self._kept = None
            self._kept = (weights, self._source.load(model))
        return self._kept[1]


_Weights = tuple[str, str | None, ModelDefaults]


def engine_settings(settings: Settings) -> EngineSettings:
    return EngineSettings(
        device=settings.device,
        dtype=settings.dtype,
        quantization=settings.quantization,
        num_threads=settings.num_threads,
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        kv_cache_memory=settings.kv_cache_memory,
        max_model_len=settings.max_model_len,
        block_size=settings.block_size,
        enable_prefix_caching=settings.enable_prefix_caching,
        scheduling_policy=settings.scheduling_policy,
        batching=settings.batching,
        request_timeout_seconds=settings.request_timeout_seconds,
        num_speculative_tokens=settings.num_speculative_tokens,
        prompt_lookup_min=settings.prompt_lookup_min,
        prompt_lookup_max=settings.prompt_lookup_max,
        reproducible=settings.reproducible,
    )


def reproducible_decision(settings: Settings) -> Iterator[tuple[str, str]]:
    """What is told of the setting where it is on."""
    if settings.reproducible:
        yield "reproducible", "yes: the bytes of a result depend on its line alone (asked for)"


def _quantization(name: str | None, error: float | None) -> Iterator[tuple[str, str]]:
    if name is not None and error is not None:
        yield "quantization", f"{name} (moves logits by {error:.1%} of their spread at most)"


def _step_size(engine: Engine) -> str:
    size = f"{engine.limits.max_num_batched_tokens:,}"
    return size if engine.scheduling.step_seconds is None else f"{size}, more where it pays"
