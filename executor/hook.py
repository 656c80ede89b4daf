"""The one place where transformers' attention layers meet ours.

A model loaded with `attn_implementation=NAME` calls `_attention` in every attention layer, which
attends through the context of the pass (`passing.attending`). Keys and values arrive with RoPE
applied and not repeated for grouped heads. No mask is made for a name without a mask function:
which keys a layer sees was noted when the model was probed (`probing`, `mask_probe`).
"""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor, nn
from transformers import AttentionInterface

from executor import mask_probe
from executor.attention.base import AttentionOptions
from executor.errors import UnsupportedModelError
from executor.mask_probe import SeenMask
from executor.passing import current_context, current_profile
from executor.profile import Part

NAME = "batchjobs_executor"

_HARMLESS = frozenset(
    {
        "cache_position",
        "cu_seq_lens_k",
        "cu_seq_lens_q",
        "deterministic",
        "dropout",
        "logits_to_keep",
        "max_length_k",
        "max_length_q",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "position_embeddings",
        "position_ids",
        "return_dict",
        "sliding_window",
        "use_cache",
    }
)
"""Keyword arguments of attention that do not change its result here: `dropout` is 0 outside of
training, lengths and positions were used before or are known to the context, and of a window in
the mask and one in `sliding_window` transformers' eager attention follows the mask."""


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
    """Make NAME and the name of mask probes known to transformers; again is fine."""
    AttentionInterface.register(NAME, _attention)
    AttentionInterface.register(mask_probe.NAME, _probed_attention)
    mask_probe.register()


def _probed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **given: Any,
) -> tuple[Tensor, None]:
    """As `_attention`, and notes the mask of the layer."""
    masks: mask_probe.MaskProbe = current_context().masks
    module.seen_mask = masks.seen(attention_mask, type(module).__name__)  # type: ignore[assignment]
    return _attention(module, query, key, value, None, **given)


def _attention(
    module: nn.Module,
    query: Tensor,  # [1, Hq, T, Dk]
    key: Tensor,  # [1, Hkv, T, Dk]
    value: Tensor,  # [1, Hkv, T, Dv]
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    is_causal: bool | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    refuse_unknown(module, more)
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if attention_mask is not None or not causal:
        raise UnsupportedModelError(
            f"{type(module).__name__} wants a mask of its own in its attention, which a packed "
            "batch cannot give it."
        )
    options = AttentionOptions(
        scale=query.shape[-1] ** -0.5 if scaling is None else scaling,
        window=seen_window(module),
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


def seen_window(module: nn.Module) -> int | None:
    """The window of a layer, as its mask was seen to be; None if it sees all tokens before.

    Raises:
        UnsupportedModelError: its mask was never seen, as no probe reached the layer.
    """
    mask = getattr(module, "seen_mask", None)
    if not isinstance(mask, SeenMask):
        raise UnsupportedModelError(
            f"{type(module).__name__} has not been probed, so which keys it sees is unknown."
        )
    return mask.window


def windows(module: nn.Module) -> set[int | None]:
    """Those of all layers of a probed model."""
    masks = (getattr(part, "seen_mask", None) for part in module.modules())
    return {mask.window for mask in masks if isinstance(mask, SeenMask)}


def refuse_unknown(module: nn.Module, given: dict[str, Any]) -> None:
    """Raise UnsupportedModelError for keyword arguments of attention that are not known here."""
    unknown = sorted(
        name for name, value in given.items() if value is not None and name not in _HARMLESS
    )
    if unknown:
        raise UnsupportedModelError(
            f"{type(module).__name__} gives its attention {', '.join(unknown)}, which packed "
            "attention does not know, so models of this kind cannot be packed."
        )


def configured_window(module: nn.Module) -> int | None:
    """The window of a layer whose model leaves it to the mask, which we do not use."""
    config = getattr(module, "config", None)
    kinds = getattr(config, "layer_types", None)
    if not kinds or kinds[layer_index(module)] != "sliding_attention":
        return None
    window: int | None = getattr(config, "sliding_window", None)
    return window
