"""A model that computes in float32 over weights of 16 bits, against its float32 copy."""

from __future__ import annotations

import copy

import pytest
import torch

from executor.widening import Widening, widened
from tests.support.tiny_models import FAMILIES, tiny_config, tiny_model

TOKENS = torch.randint(3, 128, (1, 20), generator=torch.Generator().manual_seed(0))


@torch.inference_mode()
def logits(model: torch.nn.Module) -> torch.Tensor:
    return model(input_ids=TOKENS, use_cache=False).logits


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_answers_are_those_of_a_float32_copy(family: str, tied: bool, stored: torch.dtype) -> None:
    config = tiny_config(family, tie_word_embeddings=tied)
    model = tiny_model(config, attention="eager").to(stored)
    expected = logits(copy.deepcopy(model).float())
    Widening(model)
    assert logits(model).dtype == torch.float32
    assert torch.equal(logits(model), expected)


def test_linear_weights_stay_as_they_are_stored() -> None:
    model = tiny_model(tiny_config("llama"), attention="eager").bfloat16()
    weights = [m.weight.data_ptr() for m in model.modules() if isinstance(m, torch.nn.Linear)]
    Widening(model)
    linears = [m for m in model.modules() if isinstance(m, torch.nn.Linear)]
    assert [m.weight.data_ptr() for m in linears] == weights
    assert {m.weight.dtype for m in linears} == {torch.bfloat16}


def test_model_is_what_it_was_afterwards() -> None:
    model = tiny_model(tiny_config("gemma2"), attention="eager").bfloat16()
    before, expected = {n: p.dtype for n, p in model.named_parameters()}, logits(model)
    with widened(model, torch.float64):
        assert logits(model).dtype == torch.float64
    assert {n: p.dtype for n, p in model.named_parameters()} == before
    assert torch.equal(logits(model), expected)
