"""Find out how a loaded model attends: the shapes of its attention layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from executor.attention.base import AttentionOptions
from executor.attention.reference import attend
from executor.errors import UnsupportedModelError
from executor.hook import AttentionContext
from executor.model import LayerShape, run_packed


class LayerProbe:
    """Attends over the whole row as one sequence and notes each layer's shape."""

    kept = None

    def __init__(self) -> None:
        self.shapes: dict[int, LayerShape] = {}

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
    """One pass over a few tokens."""
    device = next(module.parameters()).device
    row = torch.arange(4, device=device)[None]
    run_packed(module, row, row, torch.tensor([3], device=device), context)


def probe_layers(module: nn.Module, config: Any) -> dict[int, LayerShape]:
    """Shapes of the attention layers by index.

    Raises:
        UnsupportedModelError: some layer does not attend through our hook.
    """
    probe = LayerProbe()
    try:
        run_probe(module, probe)
    except UnsupportedModelError:
        raise
    except Exception as error:
        # A model that was not written for the interface may trip over its absent mask anywhere.
        raise UnsupportedModelError(f"{type(module).__name__} cannot be packed: {error}") from error
    if len(probe.shapes) != config.num_hidden_layers:
        raise UnsupportedModelError(
            f"{type(module).__name__} cannot be packed: {len(probe.shapes)} of its "
            f"{config.num_hidden_layers} layers use the attention interface."
        )
    return probe.shapes
