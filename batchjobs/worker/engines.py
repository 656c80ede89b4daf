"""Models of the catalogue as engines that are ready to run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from batchjobs import __version__
from batchjobs.endpoints.base import Body, ModelContext, Tokenizer
from batchjobs.endpoints.samplers import check_defaults
from batchjobs.errors import InvalidRequestError, ModelError
from batchjobs.model_defaults import ModelDefaults
from batchjobs.models import Model
from batchjobs.settings import Settings
from executor.metrics import EngineMetrics
from executor.profile import Profile
from executor.recorder import StepWatcher
from executor.request import Completion, Request
from executor.roofline import ModelCost
from executor.settings import EngineSettings, Limits
from executor.threads import yield_when_idle

if TYPE_CHECKING:
    from executor.device import DevicePlan


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
    """A running model. `decisions` say in words what was chosen for this machine, and why;
    `cost` and `device` are None for one that computes nothing."""

    engine: Runner
    tokenizer: Tokenizer
    fingerprint: str
    decisions: tuple[tuple[str, str], ...] = ()
    cost: ModelCost | None = None
    device: DevicePlan | None = None
    profile: Profile | None = None
    sampling: Body = field(default_factory=dict)
    """What lines that leave a parameter out are given."""

    def context(self, name: str, *, ignore_unknown: bool = False) -> ModelContext:
        """For lines that ask for the model as `name`."""
        return ModelContext(
            name=name,
            tokenizer=self.tokenizer,
            max_model_len=self.engine.limits.max_model_len,
            fingerprint=self.fingerprint,
            ignore_unknown=ignore_unknown,
            defaults=self.sampling,
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
        from executor.build import build_engine
        from executor.errors import EngineError
        from executor.generation import own_sampling
        from executor.loading import Checkpoint

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
        dtype = str(device.dtype).removeprefix("torch.")
        return LoadedModel(
            engine=ready.engine,
            tokenizer=ready.tokenizer,
            fingerprint=fingerprint(model, dtype, self._settings),
            sampling=sampling,
            cost=ready.cost,
            device=device,
            profile=ready.profile,
            decisions=(
                ("device", f"{device.device} ({device.device_reason})"),
                ("dtype", f"{dtype} ({device.dtype_reason})"),
                ("threads", f"{device.num_threads} ({device.threads_reason})"),
                ("attention", ready.attention_backend),
                ("sampling", _in_words(sampling)),
                ("max_model_len", f"{limits.max_model_len:,} tokens"),
                ("max_num_seqs", f"{limits.max_num_seqs:,}"),
                ("max_num_batched_tokens", f"{limits.max_num_batched_tokens:,}"),
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
    )


def model_sampling(
    settings: Settings, own: Mapping[str, Any], catalogue: Mapping[str, Any]
) -> dict[str, Any]:
    """What lines that leave a parameter out are given: the catalogue's word goes before that of
    the settings, and this before the model's `own`.

    Raises ModelError where a value is none that a line could have.
    """
    model = own if settings.generation_config == "auto" else {}
    override = settings.override_generation_config
    for where, values in (
        ("The model's generation config", model),
        ("BATCHJOBS_OVERRIDE_GENERATION_CONFIG", override),
    ):
        try:
            check_defaults(dict(values))
        except InvalidRequestError as wrong:
            raise ModelError(f"{where} cannot be used: {wrong.message}") from wrong
    return {**model, **override, **catalogue}


def fingerprint(model: Model, dtype: str, settings: Settings) -> str:
    """Changes with whatever may change an answer: weights, number type, engine version, what the
    catalogue says of the model, and what the settings say of its generation config."""
    words = f"{model.source}@{model.revision} {dtype} batchjobs {__version__}"
    defaults = ModelDefaults.of(model)
    if defaults != ModelDefaults():
        words += f" {defaults}"
    if settings.generation_config != "auto" or settings.override_generation_config:
        override = sorted(settings.override_generation_config.items())
        words += f" {settings.generation_config} {override}"
    return f"fp_{hashlib.blake2b(words.encode(), digest_size=5).hexdigest()}"


def _in_words(sampling: Mapping[str, Any]) -> str:
    if not sampling:
        return "the public API's defaults"
    return ", ".join(f"{name} {value}" for name, value in sorted(sampling.items()))
