"""Find out how a loaded model attends: the shapes and the masks of its attention layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from executor import hook, mask_probe
from executor.attention.base import AttentionOptions
from executor.attention.reference import attend
from executor.errors import UnsupportedModelError, cannot_be_packed
from executor.hook import AttentionContext
from executor.loading import max_positions
from executor.mask_probe import MaskProbe
from executor.model import LayerShape, run_packed

_ROWS = 8
"""Tokens of a probe."""


class LayerProbe:
    """Attends over the whole row as one sequence and notes each layer's shape."""

    kept = None

    def __init__(self) -> None:
        self.shapes: dict[int, LayerShape] = {}
        self.masks = MaskProbe()

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions
    ) -> Tensor:
        if layer in self.shapes:
            raise UnsupportedModelError(f"attention layer {layer} runs twice in one pass.")
        self.shapes[layer] = LayerShape(
            kv_heads=key.shape[1], key_size=key.shape[2], value_size=value.shape[2]
        )
        positions = torch.arange(len(query), device=query.device)
        return attend(query, key.transpose(0, 1), value.transpose(0, 1), positions, options)


@torch.inference_mode()
def run_probe(module: nn.Module, context: AttentionContext) -> None:
    """One pass over a few tokens, at positions that spread over all that the model has."""
    longest = max_positions(_config(module))
    _run(module, torch.linspace(0, longest - 1, _ROWS).round().long(), context)


def probe_layers(module: Any, config: Any) -> dict[int, LayerShape]:
    """Shapes of the attention layers by index. Each layer keeps the mask that it is seen to have.

    Raises:
        UnsupportedModelError: some layer does not attend through our hook, or not causally.
    """
    probe = LayerProbe()
    try:
        _see_masks(module, probe)
        run_probe(module, LayerProbe())
    except Exception as error:
        # A model that was not written for the interface may trip over its absent mask anywhere.
        raise cannot_be_packed(module, error) from error
    if len(probe.shapes) != config.num_hidden_layers:
        raise UnsupportedModelError(
            f"{type(module).__name__} cannot be packed: {len(probe.shapes)} of its "
            f"{config.num_hidden_layers} layers use the attention interface."
        )
    return probe.shapes


@torch.inference_mode()
def _see_masks(module: Any, probe: LayerProbe) -> None:
    """One pass under the name for which masks are made; of one sequence, as masks are told from
    each other by place."""
    module.set_attn_implementation(mask_probe.NAME)
    try:
        _run(module, torch.arange(_ROWS), probe)
    finally:
        module.set_attn_implementation(hook.NAME)


def _run(module: nn.Module, positions: Tensor, context: object) -> None:
    device = next(module.parameters()).device
    tokens = torch.arange(_ROWS, device=device)
    last = torch.tensor([_ROWS - 1], device=device)
    run_packed(module, tokens[None], positions.to(device)[None], last, context)


def _config(module: Any) -> Any:
    return module.config.get_text_config()
