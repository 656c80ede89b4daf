"""Attention of whole texts in one packed row: no cache, no padding, no mask over the row.

A model loaded with `attn_implementation=NAME` calls `_attention` in every attention layer, as
models that generate call `executor.hook`. Texts of one length that lie side by side are a batch
of torch's SDPA as they are, so that a layer costs a few calls and no copy. Decoders attend
causally, encoders in both directions; what a layer does it says itself (`is_causal`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from executor import hook
from executor.embedding.batch import EqualLengths, TextBatch
from executor.errors import UnsupportedModelError
from executor.passing import current_context, current_profile
from executor.profile import Part

NAME = "batchjobs_embedding"


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
    if any(extra is not None for extra in (attention_mask, softcap, s_aux, position_bias)):
        raise UnsupportedModelError(
            f"{type(module).__name__} wants a mask, bias or cap of its own in its attention."
        )
    batch: TextBatch = current_context()
    causal = getattr(module, "is_causal", False) if is_causal is None else is_causal
    window = sliding_window or hook.configured_window(module)
    with current_profile().measure(Part.ATTENTION):
        output = attend(
            hook.rows(query),
            hook.rows(key),
            hook.rows(value),
            batch,
            scale=scaling,
            causal=bool(causal),
            window=window,
        )
    return output[None], None


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    batch: TextBatch,
    *,
    scale: float | None = None,
    causal: bool,
    window: int | None = None,
) -> Tensor:
    """Query [T, Hq, Dk], key [T, Hkv, Dk], value [T, Hkv, Dv] to output [T, Hq, Dv].

    `window` w lets a token see those less than w away, only backwards if `causal`.
    """
    parts = []
    for group in batch.groups:
        mask = _mask(batch, group, causal=causal, window=window, device=query.device)
        mixed = scaled_dot_product_attention(
            group.split(query).transpose(1, 2),
            group.split(key).transpose(1, 2),
            group.split(value).transpose(1, 2),
            attn_mask=mask,
            is_causal=causal and mask is None,
            scale=scale,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        parts.append(mixed.transpose(1, 2).flatten(0, 1))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _mask(
    batch: TextBatch,
    group: EqualLengths,
    *,
    causal: bool,
    window: int | None,
    device: torch.device,
) -> Tensor | None:
    """Of one text, for layers whose window does not reach over it: bool [length, length]."""
    if window is None or group.length <= window:
        return None

    def make() -> Tensor:
        places = torch.arange(group.length, device=device)
        distance = places[:, None] - places
        return (distance >= 0 if causal else distance > -window) & (distance < window)

    mask: Tensor = batch.once((group.length, causal, window), make)
    return mask
