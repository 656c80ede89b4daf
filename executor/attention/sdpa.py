"""Attention by torch's scaled_dot_product_attention over gathered blocks, on any device.

Decoding sequences of similar length are gathered and attended together, so that a step costs a
few calls a layer instead of one a sequence.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from executor.attention.base import AttentionOptions, LayerCache, PackedBatch
from executor.attention.reference import MAX_QUERIES, reference_attention, visible

DECODE_GROUP = 16
"""Sequences attended in one call; each is padded to the longest of its group."""


def sdpa_attention(
    query: Tensor, layer: LayerCache, batch: PackedBatch, options: AttentionOptions
) -> Tensor:
    """See `AttentionBackend`. What SDPA cannot express goes to the reference."""
    if options.softcap is not None or options.sinks is not None:
        return reference_attention(query, layer, batch, options)
    output = query.new_empty(*query.shape[:2], layer.values.shape[-1])
    by_length = sorted(batch.decoding, key=batch.context_lens.__getitem__)
    for first in range(0, len(by_length), DECODE_GROUP):
        _decode(output, query, layer, batch, by_length[first : first + DECODE_GROUP], options)
    prefill(output, query, layer, batch, options)
    return output


def prefill(
    output: Tensor,
    query: Tensor,
    layer: LayerCache,
    batch: PackedBatch,
    options: AttentionOptions,
) -> None:
    """Fill in the rows of `output` that belong to sequences with several tokens."""
    block_size = layer.keys.shape[2]
    for s in batch.prefilling:
        start, count, context = batch.query_starts[s], batch.query_lens[s], batch.context_lens[s]
        keys, values = layer.gather(
            batch.block_tables[s : s + 1, : -(-context // block_size)], query.dtype
        )
        for first in range(0, count, MAX_QUERIES):
            last = min(first + MAX_QUERIES, count)
            seen = context - count + last
            positions = torch.arange(seen - (last - first), seen, device=query.device)
            rows = slice(start + first, start + last)
            output[rows] = scaled_dot_product_attention(
                query[rows].transpose(0, 1)[None],
                keys[:, :, :seen],
                values[:, :, :seen],
                attn_mask=visible(positions, seen, options.window),
                scale=options.scale,
                enable_gqa=True,
            )[0].transpose(0, 1)


def _decode(
    output: Tensor,
    query: Tensor,
    layer: LayerCache,
    batch: PackedBatch,
    group: list[int],
    options: AttentionOptions,
) -> None:
    longest = max(batch.context_lens[s] for s in group)
    blocks = -(-longest // layer.keys.shape[2])
    members = torch.tensor(group, device=query.device)
    rows = torch.tensor([batch.query_starts[s] for s in group], device=query.device)
    last = torch.tensor([batch.context_lens[s] - 1 for s in group], device=query.device)
    keys, values = layer.gather(batch.block_tables[members, :blocks], query.dtype)
    mask = visible(last[:, None], keys.shape[2], options.window)[:, None]
    # What lies behind a context is anybody's or nobody's, and a NaN there survives a mask.
    unwritten = (torch.arange(keys.shape[2], device=query.device) > last[:, None])[:, None, :, None]
    keys.masked_fill_(unwritten, 0)
    values.masked_fill_(unwritten, 0)
    output[rows] = scaled_dot_product_attention(
        query[rows][:, :, None],
        keys,
        values,
        attn_mask=mask,
        scale=options.scale,
        enable_gqa=True,
    ).squeeze(2)
