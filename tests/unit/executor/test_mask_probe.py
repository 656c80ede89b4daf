"""Masks judged by their function, and the windows that layers are seen to have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import masking_utils as masks

from executor import hook
from executor.errors import UnsupportedModelError
from executor.mask_probe import SeenMask, judge
from executor.probing import probe_layers
from tests.support.tiny_models import tiny_config, tiny_model


@pytest.fixture(autouse=True)
def _registered() -> None:
    hook.register()


def blocks(*ids: int) -> Tensor:
    return torch.tensor([ids])


def changing(batch: Any, head: Any, query: Any, key: Any) -> Any:
    """A window of 300 that begins at position 5000."""
    return (key <= query) & ((query < 5000) | (key > query - 300))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (masks.causal_mask_function, SeenMask(None)),
        (masks.sliding_window_causal_mask_function(1), SeenMask(1)),
        (masks.sliding_window_causal_mask_function(50), SeenMask(50)),
        (masks.sliding_window_causal_mask_function(131072), SeenMask(131072)),
        (masks.bidirectional_mask_function, None),
        (masks.sliding_window_bidirectional_mask_function(50), None),
        (masks.chunked_causal_mask_function(64, torch.zeros(1, dtype=torch.int64)), None),
        (masks.chunked_causal_mask_function(8192, torch.zeros(1, dtype=torch.int64)), None),
        (masks.or_masks(masks.causal_mask_function, lambda b, h, q, k: k < 4), None),
        (
            masks.or_masks(masks.causal_mask_function, masks.blockwise_overlay(blocks(0, 0, 0, 1))),
            None,
        ),
        (masks.and_masks(masks.causal_mask_function, lambda b, h, q, k: k != 3), None),
        (changing, None),
    ],
)
def test_mask_is_known_by_what_it_shows(
    function: Callable[..., Any], expected: SeenMask | None
) -> None:
    assert judge(function) == expected


PATTERN = ["sliding_attention", "full_attention", "sliding_attention"]


@pytest.mark.parametrize(
    ("family", "overrides", "windows"),
    [
        ("llama", {}, [None] * 3),
        ("phimoe", {"sliding_window": 50}, [50] * 3),
        ("phi3", {"sliding_window": 9}, [9] * 3),
        ("mixtral", {"sliding_window": 9}, [9] * 3),
        ("starcoder2", {"sliding_window": 9}, [9] * 3),
        ("qwen2", {}, [None, 6, 6]),
        ("gemma3_text", {}, [6, None, 6]),
        ("olmo3", {"sliding_window": 7, "layer_types": PATTERN}, [7, None, 7]),
        ("gpt2", {}, [None] * 3),
    ],
)
def test_layers_have_the_window_of_their_mask(
    family: str, overrides: dict[str, Any], windows: list[int | None]
) -> None:
    model = tiny_model(tiny_config(family, **overrides), attention=hook.NAME)
    probe_layers(model, model.config)
    attention = [m for m in model.modules() if isinstance(getattr(m, "seen_mask", None), SeenMask)]
    assert [hook.seen_window(module) for module in attention] == windows
    assert model.config._attn_implementation == hook.NAME


def test_layer_that_was_not_probed_is_refused() -> None:
    module = torch.nn.Linear(1, 1)
    with pytest.raises(UnsupportedModelError, match="Linear has not been probed"):
        hook.seen_window(module)


@pytest.mark.parametrize("name", ["create_chunked_causal_mask", "create_bidirectional_mask"])
def test_model_with_another_mask_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(config: Any, inputs_embeds: Tensor, **_: Any) -> Any:
        return getattr(masks, name)(config, inputs_embeds, attention_mask=None, cache=None)

    monkeypatch.setattr("transformers.models.llama.modeling_llama.create_causal_mask", other)
    model = tiny_model(tiny_config("llama", attention_chunk_size=4), attention=hook.NAME)
    with pytest.raises(UnsupportedModelError, match="neither causal nor causal with a window"):
        probe_layers(model, model.config)


def test_model_that_makes_a_mask_by_itself_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "transformers.models.llama.modeling_llama.create_causal_mask",
        lambda **given: torch.zeros(1, 1, 8, 8),
    )
    model = tiny_model(tiny_config("llama"), attention=hook.NAME)
    with pytest.raises(UnsupportedModelError, match="without a mask of transformers' mask func"):
        probe_layers(model, model.config)


@pytest.mark.parametrize("name", ["indices", "block_indices", "sinks", "position_bias"])
def test_attention_argument_that_is_not_known_is_refused_by_name(name: str) -> None:
    module = torch.nn.Linear(1, 1)
    with pytest.raises(UnsupportedModelError, match=f"Linear gives its attention {name}, which"):
        hook.refuse_unknown(module, {name: torch.zeros(1), "dropout": 0.0})
    hook.refuse_unknown(module, {name: None, "position_ids": torch.zeros(1), "use_cache": False})
