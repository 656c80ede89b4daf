"""The one place where transformers' attention layers meet ours.

A model loaded with `attn_implementation=NAME` calls `_attention` in every attention layer, which
attends through the context of the pass (`passing.attending`). Keys and values arrive with RoPE
applied and not repeated for grouped heads. No mask is made for a name without a mask function.
"""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor, nn
from transformers import AttentionInterface

from executor.attention.base import AttentionOptions
from executor.errors import UnsupportedModelError
from executor.passing import current_context, current_profile
from executor.profile import Part

NAME = "batchjobs_executor"


class AttentionContext(Protocol):
    """What a forward pass does at an attention layer."""

    @property
    def kept(self) -> Tensor | None:
        """Rows [R] of the packed row whose last states are looked at; None: all may be."""

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions
    ) -> Tensor:
        """Query [T, Hq, Dk], key [T, Hkv, Dk], value [T, Hkv, Dv] to output [T, Hq, Dv]."""


def register() -> None:
    """Make NAME known to transformers; again is fine."""
    AttentionInterface.register(NAME, _attention)


def _attention(
    module: nn.Module,
    query: Tensor,  # [1, Hq, T, Dk]
    key: Tensor,  # [1, Hkv, T, Dk]
    value: Tensor,  # [1, Hkv, T, Dv]
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if attention_mask is not None or position_bias is not None or not causal:
        raise UnsupportedModelError(
            f"{type(module).__name__} wants a mask or bias of its own in its attention, which a "
            "packed batch cannot give it."
        )
    options = AttentionOptions(
        scale=query.shape[-1] ** -0.5 if scaling is None else scaling,
        window=sliding_window or configured_window(module),
        softcap=softcap,
        sinks=s_aux,
    )
    context: AttentionContext = current_context()
    with current_profile().measure(Part.ATTENTION):
        output = context.attend(layer_index(module), rows(query), rows(key), rows(value), options)
    return output[None], None


def rows(heads_first: Tensor) -> Tensor:
    """A packed row's [1, H, T, D] as [T, H, D]."""
    return heads_first[0].transpose(0, 1)


def layer_index(module: nn.Module) -> int:
    index = getattr(module, "layer_idx", None)
    if not isinstance(index, int):
        raise UnsupportedModelError(
            f"{type(module).__name__} does not say which layer it is, so its cache is unknown."
        )
    return index


def configured_window(module: nn.Module) -> int | None:
    """The window of a layer whose model leaves it to the mask, which we do not use."""
    config = getattr(module, "config", None)
    kinds = getattr(config, "layer_types", None)
    if not kinds or kinds[layer_index(module)] != "sliding_attention":
        return None
    window: int | None = getattr(config, "sliding_window", None)
    return window
