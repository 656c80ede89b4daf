"""From a checkpoint to an engine that is ready and known to compute it right."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from executor.attention.base import AttentionBackend
from executor.attention.cpu import CpuAttention
from executor.attention.reference import reference_attention
from executor.attention.sdpa import sdpa_attention
from executor.check_cache import check_key, is_known, note
from executor.cost import model_cost
from executor.device import DevicePlan
from executor.direct import direct_layers
from executor.engine import Engine
from executor.errors import EngineError
from executor.fusing import fuse_modules
from executor.identity import engine_parts
from executor.layer_profile import watch_layers
from executor.linear import Packing, packed_linear
from executor.llguidance_grammar import LLGuidance
from executor.loading import Checkpoint, LoadedModel, load
from executor.memory import give_back_freed_memory, keep_freed_memory, let_go_of_file
from executor.merging import optimize_linears
from executor.model import LayerShape, PackedModel, PagedCache
from executor.probing import LayerProbe, probe_layers, run_probe
from executor.profile import Profile
from executor.quantized import Int8Linear, check_can_quantize
from executor.reproducible import (
    NoAttention,
    check_reproducible,
    check_settings,
    fixed_linear,
)
from executor.roofline import ModelCost
from executor.self_check import (
    OwnAnswers,
    PagedForm,
    Truth,
    check_packing,
    find_truth,
    is_tiny,
    logit_error,
    own_answers,
)
from executor.settings import EngineSettings, Limits, Scheduling, Speculation
from executor.sizing import STEP_SECONDS, check_weights_fit, plan_limits
from executor.text import HfTokenizer
from executor.widening import Widening, widened

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
    parts: Mapping[str, str]
    """What it computes with, for fingerprints (`identity.engine_parts`)."""
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
        backend = CpuAttention(cascade=fast.cascade, alone=settings.reproducible)
    if settings.reproducible:
        check_settings(settings, loaded.device, backend)
    if loaded.device.is_cpu:
        check_weights_fit(loaded.module, loaded.device.types, name=checkpoint.source)
    layers = probe_layers(loaded.module, loaded.config)
    key = _check_key(checkpoint, loaded, settings, fast)
    asks = not is_known(key)
    own = _own(loaded) if asks and _rounds(loaded.device) else None
    if loaded.device.is_cpu:
        Widening(loaded.module)
    truth = _truth(loaded) if asks else None
    early = _early_cache(loaded, layers, settings)
    form = PagedForm(layers=layers, backend=backend, cache=loaded.device.types.cache)
    error = _make_fast(loaded, form, settings, fast, truth, own)
    note(key)
    gc.collect()  # replaced modules hold each other, and the checkpoint's files with them
    give_back_freed_memory()
    taken = 0 if early is None else early.taken
    limits = plan_limits(loaded, layers, settings, taken=taken)
    if settings.reproducible:
        check_reproducible(
            loaded.module,
            lambda: run_probe(loaded.module, NoAttention()),
            most_rows=limits.max_num_batched_tokens,
        )
    if early is not None and early.cut(limits.num_blocks):
        cache = early
    else:
        cache = _new_cache(loaded, layers, limits)
    del early
    cache.take_ahead(_likely_blocks(limits))
    keep_freed_memory()
    model = PackedModel(loaded.module, cache, backend)
    library = LLGuidance(loaded.tokenizer)
    scheduling = _scheduling(settings, is_cpu=loaded.device.is_cpu)
    engine = Engine(model, loaded.tokenizer, limits, scheduling, library=library)
    return ReadyEngine(
        engine=engine,
        tokenizer=loaded.tokenizer,
        device=loaded.device,
        attention_backend=name,
        parts=engine_parts(
            loaded.device,
            name,
            weights=settings.quantization,
            reproducible=settings.reproducible,
        ),
        quantization_error=error,
        cost=_cost(loaded, layers, settings),
        profile=_watched(engine, loaded) if profiled else None,
    )


def _rounds(plan: DevicePlan) -> bool:
    """Whether ours is not as exact as float32."""
    return plan.types.products != torch.float32


def _check_key(
    checkpoint: Checkpoint, loaded: LoadedModel, settings: EngineSettings, fast: FastPaths
) -> str | None:
    """A name for the check of this load (`check_cache`); None where it is always done: tiny models
    are checked at once, and 8-bit weights say how far they are off."""
    if settings.quantization is not None or is_tiny(loaded.module):
        return None
    return check_key(
        str(Path(checkpoint.source) / checkpoint.subfolder),
        types=asdict(loaded.device.types),
        device=str(loaded.device.device),
        threads=loaded.device.num_threads,
        backend=settings.attention_backend,
        reproducible=settings.reproducible,
        fast=asdict(fast),
    )


def _own(loaded: LoadedModel) -> OwnAnswers:
    """Of the model in the type of our products, in which it may not have been loaded."""
    with widened(loaded.module, loaded.device.types.products):
        return own_answers(loaded.module, loaded.config.vocab_size)


def _truth(loaded: LoadedModel) -> Truth:
    with nullcontext() if loaded.device.is_cpu else widened(loaded.module, torch.float32):
        return find_truth(loaded.module, loaded.config.vocab_size)


def _make_fast(
    loaded: LoadedModel,
    form: PagedForm,
    settings: EngineSettings,
    fast: FastPaths,
    truth: Truth | None,
    own: OwnAnswers | None,
) -> float | None:
    """Make it fast, and check before and after that packing leaves the model right; not where
    there is no `truth`, as it was checked before.

    `own` is what the model answers in 16 bits by itself, where ours has products of 16 bits.
    Returns how far 8-bit weights move the logits; None for others.
    """
    module, is_cpu = loaded.module, loaded.device.is_cpu
    if truth is not None and is_cpu and (settings.quantization is not None or own is not None):
        check_packing(module, replace(form, cache=torch.float32), truth)
    if settings.quantization is not None:
        assert truth is not None, "8-bit weights are always checked"
        return _quantize(loaded, form, truth, fast)
    if is_cpu:
        _optimize(loaded, fast, fixed_linear if settings.reproducible else packed_linear)
    if truth is not None:
        check_packing(module, form, truth if own is None else truth.beside(own))
    return None


def _early_cache(
    loaded: LoadedModel, layers: dict[int, LayerShape], settings: EngineSettings
) -> PagedCache | None:
    """One with room to spare, for the beginning of which memory is got while the weights are
    brought into order; None where there is no memory to get, or none is left."""
    if not loaded.device.is_cpu:
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
    return PagedCache(layers, limits, dtype=loaded.device.types.cache, device=loaded.device.device)


def _likely_blocks(limits: Limits) -> int:
    return limits.max_num_seqs * -(-_LIKELY_TOKENS // limits.block_size)


def _cost(
    loaded: LoadedModel, layers: dict[int, LayerShape], settings: EngineSettings
) -> ModelCost:
    types = loaded.device.types
    weight_bytes = 1 if settings.quantization is not None else types.weights.itemsize
    return model_cost(loaded.module, layers, weight_bytes=weight_bytes, cache=types.cache)


def _optimize(
    loaded: LoadedModel, fast: FastPaths, layer: Callable[..., nn.Module] = packed_linear
) -> None:
    """Fuse and pack what a model computes; `layer` makes what takes a linear layer's place."""
    types = loaded.device.types
    packing = Packing(weights=types.weights, products=types.products)

    def run() -> None:
        run_probe(loaded.module, LayerProbe())

    if fast.fused_modules and fast.prepacked_linears and layer is not Int8Linear:
        fuse_modules(loaded.module, run, packing)
    optimize_linears(
        loaded.module,
        run,
        prepack=fast.prepacked_linears,
        merge=fast.merged_linears,
        product=layer if layer is Int8Linear else partial(layer, packing=packing),
    )
    if fast.direct_layers:
        direct_layers(loaded.module, lambda context: run_probe(loaded.module, context))
    _leave_file(loaded.module)


@torch.no_grad()
def _leave_file(module: nn.Module) -> None:
    """Copy what is left of the checkpoint, like token tables: its files need not stay mapped."""
    for parameter in module.parameters():
        mapped, parameter.data = parameter.data, parameter.data.clone()
        let_go_of_file(mapped)


def _quantize(loaded: LoadedModel, form: PagedForm, truth: Truth, fast: FastPaths) -> float:
    """Make the weights 8 bits wide; how far that moves the logits, as a share of their spread."""
    if not loaded.device.is_cpu:
        raise EngineError("quantization int8 is for CPU; on CUDA load a checkpoint that has it.")
    check_can_quantize()
    _optimize(loaded, replace(fast, prepacked_linears=True), Int8Linear)
    return logit_error(loaded.module, form, truth)


def _scheduling(settings: EngineSettings, *, is_cpu: bool) -> Scheduling:
    grows = is_cpu and settings.max_num_batched_tokens is None and not settings.reproducible
    return Scheduling(
        policy=settings.scheduling_policy,
        batching=settings.batching,
        enable_prefix_caching=settings.enable_prefix_caching,
        request_timeout_seconds=settings.request_timeout_seconds,
        step_seconds=STEP_SECONDS if grows else None,
        speculation=_speculation(settings),
    )


def _speculation(settings: EngineSettings) -> Speculation | None:
    if settings.reproducible or not settings.num_speculative_tokens:
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
    name = settings.attention_backend or ("cpu" if device.is_cpu else "sdpa")
    if name not in BACKENDS:
        raise EngineError(f"attention_backend {name!r} is not one of {', '.join(BACKENDS)}.")
    return name, BACKENDS[name]
