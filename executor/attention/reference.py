"""Attention in plain torch operations, sequence by sequence: the oracle of all other backends."""

from __future__ import annotations

import torch
from torch import Tensor

from executor.attention.base import AttentionOptions, LayerCache, PackedBatch

MAX_QUERIES = 256
"""Queries scored at once, which bounds the score matrix."""


def reference_attention(
    query: Tensor, layer: LayerCache, batch: PackedBatch, options: AttentionOptions
) -> Tensor:
    """See `AttentionBackend`. Computes in float32 whatever the cache holds."""
    output = query.new_empty(*query.shape[:2], layer.values.shape[-1])
    for s, (start, count) in enumerate(zip(batch.query_starts, batch.query_lens, strict=True)):
        context = batch.context_lens[s]
        keys, values = layer.gather(batch.block_tables[s : s + 1], torch.float32)
        for first in range(0, count, MAX_QUERIES):
            last = min(first + MAX_QUERIES, count)
            rows = slice(start + first, start + last)
            positions = torch.arange(context - count + first, context - count + last)
            output[rows] = attend(
                query[rows],
                keys[0, :, :context],
                values[0, :, :context],
                positions.to(query.device),
                options,
            )
    return output


def attend(
    query: Tensor, keys: Tensor, values: Tensor, positions: Tensor, options: AttentionOptions
) -> Tensor:
    """One sequence: query [Q, Hq, Dk] at `positions` [Q] over keys and values [Hkv, C, D]."""
    count, heads, _ = query.shape
    kv_heads, context, _ = keys.shape
    grouped = query.float().view(count, kv_heads, heads // kv_heads, -1)
    scores = torch.einsum("qhgd,hcd->hgqc", grouped, keys.float()) * options.scale
    if options.softcap is not None:
        scores = options.softcap * torch.tanh(scores / options.softcap)
    mask = visible(positions, context, options.window)
    scores = scores.masked_fill(~mask, -torch.inf)
    if options.sinks is not None:
        sinks = options.sinks.float().view(kv_heads, -1, 1, 1).expand(-1, -1, count, 1)
        scores = torch.cat([scores, sinks], dim=-1)
    weights = scores.softmax(dim=-1)[..., :context]
    mixed = torch.einsum("hgqc,hcd->qhgd", weights, values.float())
    return mixed.reshape(count, heads, -1).to(query.dtype)


def visible(positions: Tensor, context: int, window: int | None) -> Tensor:
    """Which of `context` keys a query at each of `positions` may see: bool [..., Q, C]."""
    keys = torch.arange(context, device=positions.device)
    distance = positions[..., None] - keys
    mask = distance >= 0
    return mask if window is None else mask & (distance < window)
