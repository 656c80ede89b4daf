"""Layers computed the direct way against the modules they are made of."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from executor import hook
from executor.attention.cpu import CpuAttention
from executor.compiled import team
from executor.compiled.series import Series
from executor.direct import direct_layers
from executor.fusing import fuse_modules
from executor.merging import optimize_linears
from executor.model import PackedModel, PagedCache
from executor.passing import charge_passes
from executor.probing import LayerProbe, probe_layers, run_probe
from executor.profile import Part, Profile
from executor.request import Request, SamplingParams
from executor.sequence import Group, Sequence
from executor.settings import Limits
from executor.span import Span
from tests.support.tiny_models import FAMILIES, tiny_config, tiny_model

pytestmark = pytest.mark.skipif(team.openmp() is None, reason="no OpenMP in this torch")

LIMITS = Limits(
    max_num_seqs=4, max_num_batched_tokens=64, max_model_len=64, num_blocks=16, block_size=8
)


def fused(family: str, **overrides: Any) -> tuple[Any, Any]:
    """A model with fused modules and packed linears, and its configuration."""
    hook.register()
    config = tiny_config(family, **{"intermediate_size": 64, **overrides})
    model = tiny_model(config, attention=hook.NAME)
    probe_layers(model, config)

    def run() -> None:
        run_probe(model, LayerProbe())

    fuse_modules(model, run)
    optimize_linears(model, run)
    return model, config


def make_direct(model: Any) -> int:
    return direct_layers(model, lambda context: run_probe(model, context))


def spans() -> list[list[Span]]:
    """Two steps: prompts of 11 and 5 tokens, and then a token of each and three of another."""
    prompts = [list(range(3 + i, 3 + i + length)) for i, length in enumerate((12, 6, 3))]
    sequences = [
        Sequence(Group(Request(id="", prompt_token_ids=tuple(p))), i, p, watcher=None)
        for i, p in enumerate(prompts)
    ]
    for i, sequence in enumerate(sequences):
        sequence.block_table = [3 * i, 3 * i + 2]
    first = [Span(sequences[0], 0, 11), Span(sequences[1], 0, 5)]
    return [first, [Span(sequences[0], 11, 1), Span(sequences[1], 5, 1), Span(sequences[2], 0, 3)]]


def logits(model: Any, config: Any) -> list[Tensor]:
    layers = probe_layers(model, config)
    cache = PagedCache(layers, LIMITS, dtype=torch.float32, device="cpu")
    packed = PackedModel(model, cache, CpuAttention())
    return [packed.forward(step) for step in spans()]


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_the_same_whether_layers_are_direct_or_not(family: str) -> None:
    model, config = fused(family)
    before = logits(model, config)
    make_direct(model)
    for ours, own in zip(logits(model, config), before, strict=True):
        torch.testing.assert_close(ours, own, atol=1e-5, rtol=1e-5)


def packed_llama() -> PackedModel:
    model, config = fused("llama")
    assert make_direct(model) == 3
    cache = PagedCache(probe_layers(model, config), LIMITS, dtype=torch.float32, device="cpu")
    return PackedModel(model, cache, CpuAttention())


def prompt(request: Request) -> Span:
    tokens = list(request.prompt_token_ids)
    sequence = Sequence(Group(request), 0, tokens, watcher=None)
    sequence.block_table = [1, 0]
    return Span(sequence, 0, len(tokens))


def test_states_that_nobody_looks_at_are_not_computed_by_the_last_layer() -> None:
    packed = packed_llama()
    sampled = packed.forward([prompt(Request(id="", prompt_token_ids=tuple(range(3, 14))))])
    assert torch.equal(packed.logits_at([10]), sampled)
    assert not packed.logits_at(range(10)).any()


def test_states_of_prompts_that_are_scored_are_all_computed() -> None:
    module, config = fused("llama")
    tokens = tuple(range(3, 14))
    scored = Request(
        id="", prompt_token_ids=tokens, sampling=SamplingParams(prompt_logprobs=0, max_tokens=1)
    )

    def all_logits() -> Tensor:
        layers = probe_layers(module, config)
        cache = PagedCache(layers, LIMITS, dtype=torch.float32, device="cpu")
        packed = PackedModel(module, cache, CpuAttention())
        packed.forward([prompt(scored)])
        return packed.logits_at(range(len(tokens)))

    before = all_logits()
    assert make_direct(module) == 3
    torch.testing.assert_close(all_logits(), before, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("family", "layers"),
    [
        ("llama", 3),
        ("mistral", 3),
        ("qwen2", 3),
        ("qwen3", 3),
        ("phi3", 3),
        ("gemma2", 0),
        ("olmo2", 0),
    ],
)
def test_layers_of_the_usual_shape_are_direct(family: str, layers: int) -> None:
    model, _ = fused(family)
    assert make_direct(model) == layers


def test_layer_that_scales_what_it_adds_is_left_alone() -> None:
    model, _ = fused("granite", residual_multiplier=0.5)
    assert make_direct(model) == 0


def test_layers_without_merged_projections_are_left_alone() -> None:
    model, _ = fused("llama")
    for layer in model.model.layers[:2]:
        layer.self_attn.k_proj = nn.Linear(32, 16, bias=False)
    assert make_direct(model) == 1


def test_pass_that_is_not_packed_goes_the_model_s_own_way() -> None:
    model, _ = fused("llama")
    tokens = torch.arange(3, 12)[None]
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        before = model(input_ids=tokens, use_cache=False).logits
        model.set_attn_implementation(hook.NAME)
        assert make_direct(model) == 3
        model.set_attn_implementation("eager")
        assert torch.equal(model(input_ids=tokens, use_cache=False).logits, before)


def test_profile_is_told_of_the_parts_of_direct_layers() -> None:
    model, config = fused("llama")
    make_direct(model)
    profile = Profile()
    charge_passes(model, profile)
    logits(model, config)
    spent = {part.name: part.seconds for part in profile.report().parts}
    assert all(spent[part] > 0 for part in (Part.LINEARS, Part.ATTENTION, Part.MODEL))


def test_nothing_is_direct_without_a_team(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = fused("llama")
    monkeypatch.setattr(team, "openmp", lambda: None)
    assert make_direct(model) == 0
    with pytest.raises(RuntimeError, match="OpenMP"):
        Series([])
