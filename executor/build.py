"""From a checkpoint to an engine that is ready and known to compute it right."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from executor.attention.base import AttentionBackend
from executor.attention.cpu import cpu_attention
from executor.attention.reference import reference_attention
from executor.attention.sdpa import sdpa_attention
from executor.cost import model_cost
from executor.device import DevicePlan
from executor.engine import Engine
from executor.errors import EngineError
from executor.layer_profile import watch_layers
from executor.loading import Checkpoint, LoadedModel, load
from executor.model import PackedModel, PagedCache
from executor.packing import check_packing, probe_layers
from executor.profile import Profile
from executor.roofline import ModelCost
from executor.settings import EngineSettings
from executor.sizing import plan_limits
from executor.text import HfTokenizer

BACKENDS: dict[str, AttentionBackend] = {
    "reference": reference_attention,
    "sdpa": sdpa_attention,
    "cpu": cpu_attention,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyEngine:
    """An engine, the tokenizer of its model, and what was decided about the machine."""

    engine: Engine
    tokenizer: HfTokenizer
    device: DevicePlan
    attention_backend: str
    cost: ModelCost
    profile: Profile | None


def build_engine(
    checkpoint: Checkpoint, settings: EngineSettings, *, profiled: bool = False
) -> ReadyEngine:
    """Load the model, check that packing leaves its logits alone, and size the cache.

    A `profiled` one measures where the time of its steps goes.

    Raises:
        EngineError: the model or the settings cannot be used, with the reason.
    """
    loaded = load(checkpoint, settings)
    name, backend = _backend(settings, loaded.device)
    layers = probe_layers(loaded.module, loaded.config)
    check_packing(loaded.module, layers, backend, loaded.config.vocab_size)
    limits = plan_limits(loaded, layers, settings)
    cache = PagedCache(layers, limits, dtype=loaded.device.dtype, device=loaded.device.device)
    engine = Engine(PackedModel(loaded.module, cache, backend), loaded.tokenizer, limits)
    return ReadyEngine(
        engine=engine,
        tokenizer=loaded.tokenizer,
        device=loaded.device,
        attention_backend=name,
        cost=model_cost(loaded.module, layers, loaded.device.dtype),
        profile=_watched(engine, loaded) if profiled else None,
    )


def _watched(engine: Engine, loaded: LoadedModel) -> Profile:
    cuda = loaded.device.device.type == "cuda"
    profile = Profile(settle=torch.cuda.synchronize if cuda else None)
    watch_layers(loaded.module, profile)
    engine.profile = profile
    return profile


def _backend(settings: EngineSettings, device: DevicePlan) -> tuple[str, AttentionBackend]:
    fast = device.device.type == "cpu" and device.dtype == torch.float32
    name = settings.attention_backend or ("cpu" if fast else "sdpa")
    if name not in BACKENDS:
        raise EngineError(f"attention_backend {name!r} is not one of {', '.join(BACKENDS)}.")
    return name, BACKENDS[name]
