"""Replaced linear layers against the layers they replace, family by family."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from executor import hook
from executor.linear import LinearPart, PanelLinear, PrepackedLinear, SharedProduct, can_prepack
from executor.merging import optimize_linears
from executor.probing import LayerProbe, probe_layers, run_probe
from tests.support.tiny_models import FAMILIES, tiny_config, tiny_model


def optimized(family: str, **how: bool) -> tuple[Any, Tensor, Tensor]:
    """A model with replaced layers, its logits after a few tokens before and after that."""
    hook.register()
    model = tiny_model(tiny_config(family), attention="eager")
    tokens = torch.randint(128, (1, 23), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        before = model(input_ids=tokens, use_cache=False).logits
        model.set_attn_implementation(hook.NAME)
        probe_layers(model, model.config)
        optimize_linears(model, lambda: run_probe(model, LayerProbe()), **how)
        model.set_attn_implementation("eager")
        return model, before, model(input_ids=tokens, use_cache=False).logits


def count(model: nn.Module, *kinds: type[nn.Module]) -> int:
    return sum(type(module) in kinds for module in model.modules())


@pytest.mark.parametrize("prepack", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_stay_with_merged_layers(family: str, prepack: bool) -> None:
    _, before, after = optimized(family, prepack=prepack)
    torch.testing.assert_close(after, before, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("family", "parts", "alone"), [("llama", 15, 7), ("phi3", 0, 13), ("gpt_oss", 9, 4)]
)
def test_layers_of_one_input_become_one_product(family: str, parts: int, alone: int) -> None:
    model, _, _ = optimized(family)
    assert count(model, LinearPart) == parts
    assert count(model, PanelLinear, PrepackedLinear) == alone
    assert count(model, nn.Linear) == 0


def test_tied_embeddings_stay_with_a_packed_head() -> None:
    hook.register()
    model = tiny_model(tiny_config("llama", tie_word_embeddings=True), attention=hook.NAME)
    embedding = model.get_input_embeddings().weight.clone()
    probe_layers(model, model.config)
    optimize_linears(model, lambda: run_probe(model, LayerProbe()))
    assert type(model.lm_head) in {PanelLinear, PrepackedLinear}
    assert torch.equal(model.get_input_embeddings().weight, embedding)


def test_original_weights_are_let_go() -> None:
    hook.register()
    model = tiny_model(tiny_config("llama"), attention=hook.NAME)
    weights = [weakref.ref(module) for module in model.modules() if type(module) is nn.Linear]
    probe_layers(model, model.config)
    optimize_linears(model, lambda: run_probe(model, LayerProbe()))
    gc.collect()
    assert [ref for ref in weights if ref() is not None] == []


class Curious(nn.Module):
    """Looks at a weight in its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, rows: Tensor) -> Tensor:
        return rows @ self.linear.weight.T


def test_module_that_looks_at_its_weights_is_left_alone() -> None:
    module = Curious()
    linear = module.linear
    optimize_linears(module, lambda: module(torch.zeros(1, 4)))
    assert module.linear is linear


class Impure(nn.Module):
    """Changes the tensor between two layers that are given it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Linear(4, 2)

    def forward(self, rows: Tensor) -> Tensor:
        first = self.first(rows)
        rows.add_(1)
        return torch.cat([first, self.second(rows)], dim=-1)


def test_input_changed_between_layers_is_not_merged() -> None:
    module = Impure()
    rows = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        before = module(rows.clone())
        optimize_linears(module, lambda: module(rows.clone()))
        torch.testing.assert_close(module(rows.clone()), before)
    assert count(module, LinearPart) == 0


def test_parts_are_right_in_any_order_of_calls() -> None:
    linear = nn.Linear(4, 5, bias=False)
    shared = SharedProduct(linear, [2, 3])
    one, other = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0))
    calls = [(one, 0), (other, 1), (one, 1), (one, 1), (one, 0), (other, 0), (one, 0)]
    for rows, index in calls:
        expected = linear(rows).split([2, 3], dim=-1)[index]
        torch.testing.assert_close(shared.part(rows, index), expected)


@pytest.mark.skipif(not can_prepack(), reason="this torch has no oneDNN")
@pytest.mark.parametrize("rows", [1, 3, 64, 300])
@pytest.mark.parametrize("biased", [True, False])
def test_prepacked_equals_linear(rows: int, biased: bool) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(48, 80, bias=biased)
    given = torch.randn(1, rows, 48)
    with torch.inference_mode():
        packed = PrepackedLinear(linear.weight, linear.bias)
        torch.testing.assert_close(packed(given), linear(given))
