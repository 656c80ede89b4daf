"""The check at load: right models pass in every type, and each thing broken is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from executor import hook, scenarios
from executor.attention.base import AttentionOptions, LayerCache, PackedBatch, Slots
from executor.attention.cpu import CpuAttention
from executor.errors import UnsupportedModelError
from executor.fusing import fuse_modules
from executor.linear import Packing, packed_linear
from executor.merging import optimize_linears
from executor.model import pack, run_packed
from executor.probing import LayerProbe, probe_layers, run_probe
from executor.self_check import (
    FLOOR,
    OwnAnswers,
    PagedForm,
    Truth,
    check_packing,
    find_truth,
    own_answers,
)
from executor.tile_product import multiplies_on_tiles
from executor.widening import Widening
from tests.support.tiny_models import FAMILIES, tiny_config, tiny_model

ATTEND = CpuAttention()
SHORT = [torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def _registered() -> None:
    hook.register()


def form(model: Any, backend: Any = ATTEND) -> PagedForm:
    return PagedForm(layers=probe_layers(model, model.config), backend=backend, cache=torch.float32)


def stored(family: str, dtype: torch.dtype) -> tuple[Any, OwnAnswers]:
    """A model that computes in float32 over weights of this type, and its own answers in it."""
    config = tiny_config(family, hidden_size=64, intermediate_size=96, head_dim=16)
    model = tiny_model(config, attention=hook.NAME).to(dtype)
    probe_layers(model, model.config)
    own = own_answers(model, 128)
    Widening(model)
    return model, own


def multiply_in_bfloat16(model: Any) -> None:
    packing = Packing(weights=torch.bfloat16, products=torch.bfloat16)

    def run() -> None:
        run_probe(model, LayerProbe())

    fuse_modules(model, run, packing)
    optimize_linears(model, run, product=lambda w, b: packed_linear(w, b, packing))


@pytest.mark.parametrize("dtype", [torch.float32, *SHORT])
@pytest.mark.parametrize("family", FAMILIES)
def test_family_passes_in_float32_over_its_weights(family: str, dtype: torch.dtype) -> None:
    model, _ = stored(family, dtype)
    assert check_packing(model, form(model), find_truth(model, 128)) < FLOOR / 10
    assert model.config._attn_implementation == hook.NAME


@pytest.mark.skipif(not multiplies_on_tiles(), reason="this CPU has no AMX")
@pytest.mark.parametrize("family", FAMILIES)
def test_family_passes_in_bfloat16_beside_its_own_run(family: str) -> None:
    model, own = stored(family, torch.bfloat16)
    truth = find_truth(model, 128).beside(own)
    multiply_in_bfloat16(model)
    distance = check_packing(model, form(model), truth)
    assert distance > truth.noise / 50
    if "moe" not in family:  # whose routers choose otherwise for a rounding
        assert distance < truth.noise * 1.5


def without_mask(query: Tensor, layer: LayerCache, batch: PackedBatch, options: Any) -> Tensor:
    """Every row sees its whole sequence, as far as it is written."""
    blind = replace(batch, query_starts=batch.query_starts)
    rows = [
        ATTEND(
            query[i : i + 1],
            layer,
            replace(
                blind,
                query_starts=[0],
                query_lens=[1],
                context_lens=[batch.context_lens[s]],
                block_tables=batch.block_tables[s : s + 1],
                _derived={},
            ),
            options,
        )
        for s, (start, count) in enumerate(zip(batch.query_starts, batch.query_lens, strict=True))
        for i in range(start, start + count)
    ]
    return torch.cat(rows)


def without_window(query: Tensor, layer: LayerCache, batch: PackedBatch, options: Any) -> Tensor:
    return ATTEND(query, layer, batch, replace(options, window=None))


def window_one_short(query: Tensor, layer: LayerCache, batch: PackedBatch, options: Any) -> Tensor:
    shorter = options.window and options.window - 1
    return ATTEND(query, layer, batch, replace(options, window=shorter))


def without_newest(query: Tensor, layer: LayerCache, batch: PackedBatch, options: Any) -> Tensor:
    """A decoding row does not see itself."""
    lens = [
        context - (count == 1 and context > 1)
        for context, count in zip(batch.context_lens, batch.query_lens, strict=True)
    ]
    return ATTEND(query, layer, replace(batch, context_lens=lens, _derived={}), options)


BROKEN: dict[str, Callable[..., Tensor]] = {
    "mask": without_mask,
    "window": without_window,
    "edge of the window": window_one_short,
    "the row itself": without_newest,
}


@pytest.mark.parametrize("dtype", [torch.float32, *SHORT])
@pytest.mark.parametrize("broken", BROKEN)
def test_broken_attention_is_refused(broken: str, dtype: torch.dtype) -> None:
    model, _ = stored("mistral", dtype)
    truth = find_truth(model, 128)
    with pytest.raises(UnsupportedModelError, match="MistralForCausalLM cannot be packed"):
        check_packing(model, form(model, BROKEN[broken]), truth)


def pack_with(change: Callable[[Tensor], Tensor]) -> Callable[..., PackedBatch]:
    def changed(*given: Any) -> PackedBatch:
        batch = pack(*given)
        return replace(batch, slots=Slots(change(batch.slots.places.clone())))

    return changed


def one_slot_further(places: Tensor) -> Tensor:
    places[-1:, 1] = (places[-1:, 1] + 1) % 16
    return places


@pytest.mark.parametrize("dtype", [torch.float32, *SHORT])
def test_wrong_cache_slot_is_refused(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = stored("llama", dtype)
    truth = find_truth(model, 128)
    monkeypatch.setattr(scenarios, "pack", pack_with(one_slot_further))
    with pytest.raises(UnsupportedModelError, match="cannot be packed"):
        check_packing(model, form(model), truth)


@pytest.mark.parametrize("dtype", [torch.float32, *SHORT])
def test_wrong_position_is_refused(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = stored("llama", dtype)
    truth = find_truth(model, 128)

    def shifted(module: Any, tokens: Tensor, positions: Tensor, *rest: Any) -> Tensor:
        return run_packed(module, tokens, positions + (positions == 21), *rest)

    monkeypatch.setattr(scenarios, "run_packed", shifted)
    with pytest.raises(UnsupportedModelError, match="cannot be packed"):
        check_packing(model, form(model), truth)


@pytest.mark.skipif(not multiplies_on_tiles(), reason="this CPU has no AMX")
@pytest.mark.parametrize("broken", ["mask", "window", "the row itself"])
def test_broken_attention_is_refused_beside_the_noise_of_bfloat16(broken: str) -> None:
    model, own = stored("mistral", torch.bfloat16)
    truth = find_truth(model, 128).beside(own)
    multiply_in_bfloat16(model)
    with pytest.raises(UnsupportedModelError, match="cannot be packed"):
        check_packing(model, form(model, BROKEN[broken]), truth)


def test_refusal_says_how_far_it_is_off_and_from_which_layer_on() -> None:
    model, _ = stored("gemma3_text", torch.float32)
    truth = find_truth(model, 128)

    def second_layer_wrong(
        query: Tensor, layer: LayerCache, batch: PackedBatch, options: AttentionOptions
    ) -> Tensor:
        wrong = options.window is None  # of three layers the second one sees everything
        return ATTEND(query, layer, batch, options) + 0.3 * wrong

    with pytest.raises(UnsupportedModelError) as refused:
        check_packing(model, form(model, second_layer_wrong), truth)
    assert "part in decoder layer 1 of 3" in str(refused.value)
    assert "(its own run: " in str(refused.value)


def test_distance_is_that_of_the_worst_row() -> None:
    logits = torch.randn(3, 1000, generator=torch.Generator().manual_seed(0))
    truth = Truth(asked=[], logits=[logits[:1], logits[1:]], noise=0.0)
    off = logits.clone()
    off[1] += 0.5 * logits[1].std()
    assert truth.distance([off[:1], off[1:]]) == pytest.approx(0.5, rel=1e-3)
    assert truth.distance(truth.logits) == 0
    off[2, 7] = torch.nan
    assert truth.distance([off[:1], off[1:]]) == torch.inf


def test_error_of_the_model_itself_is_one_sentence() -> None:
    model = tiny_model(tiny_config("llama"), attention=hook.NAME)
    probe_layers(model, model.config)
    model.model.layers[1].mlp.forward = lambda hidden: hidden.view(-1, 7, 5)
    with pytest.raises(UnsupportedModelError) as refused:
        own_answers(model, 128)
    text = str(refused.value)
    assert text.startswith("LlamaForCausalLM does not run by itself in this version of transf")
    assert "\n" not in text
