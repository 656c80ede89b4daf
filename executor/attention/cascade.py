"""Shared prefixes attended once for all rows of a step that have them.

Sequences whose block tables begin alike share those keys and values in memory. The queries of
all their rows are one matrix against them (Hydragen, Juravsky et al. 2024; cascade attention,
FlashInfer), so that the prefix is read once for the group and not once a row; the kernel goes on
from there with what is each row's own, joined by the log of the sum of exponentials.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from executor.attention.base import AttentionOptions, LayerCache, PackedBatch

MIN_ROWS = 64
MIN_TOKENS = 512
"""From how many rows and shared tokens on the product pays. Fewer rows find the prefix in their
core's own cache, where the kernel reads it as fast as the product would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPrefix:
    """Sequences, by their place in the batch, that begin with the same blocks."""

    sequences: tuple[int, ...]
    blocks: tuple[int, ...]


def shared_prefixes(batch: PackedBatch, block_size: int) -> list[SharedPrefix]:
    """The groups of a step that are worth a product; no sequence is in two.

    Only blocks full of what was computed before the step count, which every row may see.
    """
    tables = batch.block_tables.tolist()
    usable = [
        tuple(table[: (context - count) // block_size])
        for table, context, count in zip(tables, batch.context_lens, batch.query_lens, strict=True)
    ]
    counts = batch.query_lens
    return [
        group
        for group in _groups(usable, range(len(usable)), 0)
        if len(group.blocks) * block_size >= MIN_TOKENS
        and sum(counts[s] for s in group.sequences) >= MIN_ROWS
    ]


def _groups(
    tables: list[tuple[int, ...]], members: Sequence[int], depth: int
) -> list[SharedPrefix]:
    """Divide members, which agree in `depth` blocks, so that most block reads are saved."""
    if len(members) < 2:
        return []
    first = tables[members[0]]
    while all(tables[m][depth : depth + 1] == first[depth : depth + 1] for m in members):
        if depth == len(first):
            break
        depth += 1
    together = [SharedPrefix(sequences=tuple(members), blocks=first[:depth])] if depth else []
    branches: defaultdict[int, list[int]] = defaultdict(list)
    for member in members:
        if len(tables[member]) > depth:
            branches[tables[member][depth]].append(member)
    apart = [group for branch in branches.values() for group in _groups(tables, branch, depth + 1)]
    return together if _saved(together) >= _saved(apart) else apart


def _saved(groups: list[SharedPrefix]) -> int:
    return sum((len(group.sequences) - 1) * len(group.blocks) for group in groups)


def can_cascade(layer: LayerCache, options: AttentionOptions) -> bool:
    """Whether the product can express how this layer attends."""
    return (
        options.softcap is None
        and options.window is None
        and layer.keys.shape[3] == layer.values.shape[3]
        and hasattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu")
    )


def attend_prefix(
    query: Tensor, layer: LayerCache, places: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """All rows of a group over its prefix.

    Args:
        query: [R, Hq, D].
        places: [Hkv * M] int64, where the blocks of each head lie, counted in blocks of a head.

    Returns:
        Output [R, Hq, D], and [R, Hq] the log of the sum of the scores' exponentials.
    """
    kv_heads = layer.keys.shape[1]
    rows, heads, size = query.shape
    group = heads // kv_heads
    folded = query.view(rows, kv_heads, group, size).transpose(0, 1).reshape(kv_heads, -1, size)
    output, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        folded[None],
        _collect(layer.keys, places),
        _collect(layer.values, places),
        scale=scale,
    )
    outputs = output[0].view(kv_heads, rows, group, size).transpose(0, 1)
    sums = lse[0].view(kv_heads, rows, group).transpose(0, 1)
    return outputs.reshape(rows, heads, size), sums.reshape(rows, heads)


def block_places(blocks: Sequence[int], kv_heads: int) -> Tensor:
    """`places` for `attend_prefix`."""
    heads = torch.arange(kv_heads)[:, None]
    return (torch.tensor(blocks) * kv_heads + heads).reshape(-1)


def _collect(cache: Tensor, places: Tensor) -> Tensor:
    """[1, Hkv, M * block_size, D] of a cache [N, Hkv, block_size, D]."""
    _, kv_heads, block_size, size = cache.shape
    blocks = cache.view(-1, block_size * size).index_select(0, places)
    return blocks.view(1, kv_heads, -1, size)
