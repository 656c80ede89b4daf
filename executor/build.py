"""From a checkpoint to an engine that is ready and known to compute it right."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from executor.attention.base import AttentionBackend
from executor.attention.cpu import CpuAttention
from executor.attention.reference import reference_attention
from executor.attention.sdpa import sdpa_attention
from executor.cost import model_cost
from executor.device import DevicePlan
from executor.direct import direct_layers
from executor.engine import Engine
from executor.errors import EngineError
from executor.fusing import fuse_modules
from executor.layer_profile import watch_layers
from executor.linear import packed_linear
from executor.llguidance_grammar import LLGuidance
from executor.loading import Checkpoint, LoadedModel, load
from executor.memory import keep_freed_memory
from executor.merging import Product, optimize_linears
from executor.model import LayerShape, PackedModel, PagedCache
from executor.packing import OwnAnswers, check_packing, logit_error, own_answers
from executor.probing import LayerProbe, probe_layers, run_probe
from executor.profile import Profile
from executor.quantized import Int8Linear, check_can_quantize
from executor.roofline import ModelCost
from executor.settings import EngineSettings, Limits, Scheduling, Speculation
from executor.sizing import STEP_SECONDS, plan_limits
from executor.text import HfTokenizer

BACKENDS: dict[str, AttentionBackend] = {
    "reference": reference_attention,
    "sdpa": sdpa_attention,
    "cpu": CpuAttention(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyEngine:
    """An engine, the tokenizer of its model, and what was decided about the machine."""

    engine: Engine
    tokenizer: HfTokenizer
    device: DevicePlan
    attention_backend: str
    quantization_error: float | None
    """How far 8-bit weights move the logits, as a share of their spread; None for full ones."""
    cost: ModelCost
    profile: Profile | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FastPaths:
    """What makes the same answers faster; each can be left out to see what it is worth."""

    prepacked_linears: bool = True
    merged_linears: bool = True
    fused_modules: bool = True
    direct_layers: bool = True
    cascade: bool = True


_ALL = FastPaths()

_LIKELY_TOKENS = 256
"""Of a sequence, for which cache memory is made ready at start, if that many run at once."""
_EARLY_ROOM, _EARLY_SHARE = 1.25, 0.25
"""Of a cache that is planned before the weights are in order: addresses to have, as there may be
more memory afterwards, and memory to take, as there may be less."""


def build_engine(
    checkpoint: Checkpoint,
    settings: EngineSettings,
    fast: FastPaths = _ALL,
    *,
    profiled: bool = False,
) -> ReadyEngine:
    """Load the model, make it fast, check that its logits are still its own, size the cache.

    A `profiled` one measures where the time of its steps goes.

    Raises:
        EngineError: the model or the settings cannot be used, with the reason.
    """
    loaded = load(checkpoint, settings)
    name, backend = _backend(settings, loaded.device)
    if isinstance(backend, CpuAttention):
        backend = CpuAttention(cascade=fast.cascade)
    layers = probe_layers(loaded.module, loaded.config)
    early = _early_cache(loaded, layers, settings)
    own = own_answers(loaded.module, loaded.config.vocab_size)
    error: float | None = None
    is_cpu = loaded.device.device.type == "cpu"
    if settings.quantization is not None:
        check_packing(loaded.module, layers, backend, own)
        error = _quantize(loaded, layers, backend, own, fast)
    else:
        if is_cpu:
            _optimize(loaded, fast)
        check_packing(loaded.module, layers, backend, own)
    taken = 0 if early is None else early.taken
    limits = plan_limits(loaded, layers, settings, taken=taken)
    if early is not None and early.cut(limits.num_blocks):
        cache = early
    else:
        cache = _new_cache(loaded, layers, limits)
    del early
    cache.take_ahead(_likely_blocks(limits))
    keep_freed_memory()
    model = PackedModel(loaded.module, cache, backend)
    library = LLGuidance(loaded.tokenizer)
    scheduling = _scheduling(settings, is_cpu=is_cpu)
    engine = Engine(model, loaded.tokenizer, limits, scheduling, library=library)
    return ReadyEngine(
        engine=engine,
        tokenizer=loaded.tokenizer,
        device=loaded.device,
        attention_backend=name,
        quantization_error=error,
        cost=_cost(loaded, layers, settings),
        profile=_watched(engine, loaded) if profiled else None,
    )


def _early_cache(
    loaded: LoadedModel, layers: dict[int, LayerShape], settings: EngineSettings
) -> PagedCache | None:
    """One with room to spare, for the beginning of which memory is got while the weights are
    brought into order; None where there is no memory to get, or none is left."""
    if loaded.device.device.type != "cpu":
        return None
    try:
        limits = plan_limits(loaded, layers, settings)
        roomy = replace(limits, num_blocks=int(limits.num_blocks * _EARLY_ROOM))
        cache = _new_cache(loaded, layers, roomy)
    except (EngineError, RuntimeError):
        return None  # with 8-bit weights, or without room to spare, there may be enough
    cache.take_ahead(min(_likely_blocks(limits), int(limits.num_blocks * _EARLY_SHARE)))
    return cache


def _new_cache(loaded: LoadedModel, layers: dict[int, LayerShape], limits: Limits) -> PagedCache:
    return PagedCache(layers, limits, dtype=loaded.device.dtype, device=loaded.device.device)


def _likely_blocks(limits: Limits) -> int:
    return limits.max_num_seqs * -(-_LIKELY_TOKENS // limits.block_size)


def _cost(
    loaded: LoadedModel, layers: dict[int, LayerShape], settings: EngineSettings
) -> ModelCost:
    cost = model_cost(loaded.module, layers, loaded.device.dtype)
    if settings.quantization is None:
        return cost
    return replace(cost, weight_bytes=cost.weight_bytes // loaded.device.dtype.itemsize)


def _optimize(loaded: LoadedModel, fast: FastPaths, product: Product = packed_linear) -> None:
    def run() -> None:
        run_probe(loaded.module, LayerProbe())

    if fast.fused_modules and fast.prepacked_linears and product is packed_linear:
        fuse_modules(loaded.module, run)
    optimize_linears(
        loaded.module,
        run,
        prepack=fast.prepacked_linears,
        merge=fast.merged_linears,
        product=product,
    )
    if fast.direct_layers:
        direct_layers(loaded.module, lambda context: run_probe(loaded.module, context))


def _quantize(
    loaded: LoadedModel,
    layers: dict[int, LayerShape],
    backend: AttentionBackend,
    own: OwnAnswers,
    fast: FastPaths,
) -> float:
    """Make the weights 8 bits wide; how far that moves the logits, as a share of their spread."""
    if loaded.device.device.type != "cpu":
        raise EngineError("quantization int8 is for CPU; on CUDA load a checkpoint that has it.")
    check_can_quantize(loaded.device.dtype)
    _optimize(loaded, replace(fast, prepacked_linears=True), Int8Linear)
    return logit_error(loaded.module, layers, backend, own)


def _scheduling(settings: EngineSettings, *, is_cpu: bool) -> Scheduling:
    return Scheduling(
        policy=settings.scheduling_policy,
        batching=settings.batching,
        enable_prefix_caching=settings.enable_prefix_caching,
        request_timeout_seconds=settings.request_timeout_seconds,
        step_seconds=STEP_SECONDS if is_cpu and settings.max_num_batched_tokens is None else None,
        speculation=_speculation(settings),
    )


def _speculation(settings: EngineSettings) -> Speculation | None:
    if not settings.num_speculative_tokens:
        return None
    try:
        return Speculation(
            num_speculative_tokens=settings.num_speculative_tokens,
            prompt_lookup_min=settings.prompt_lookup_min,
            prompt_lookup_max=settings.prompt_lookup_max,
        )
    except ValueError as wrong:
        raise EngineError(f"{wrong}.") from wrong


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
