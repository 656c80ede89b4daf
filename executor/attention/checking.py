"""Whether the attention kernel works on this machine, for the sizes of a model's heads."""

from __future__ import annotations

from itertools import accumulate

import torch
from torch import Tensor

from executor.attention.base import (
    AttentionBackend,
    AttentionOptions,
    LayerCache,
    PackedBatch,
    Slots,
)
from executor.attention.kernel import fitting_width
from executor.attention.reference import reference_attention
from executor.compiled.faults import expect, works

_SEQUENCES = ((1, 150), (1, 131), (1, 140), (2, 137), (5, 70))
"""New tokens and all tokens of a check's sequences: rows alone and together, over several tiles
of keys. All but the last share their first blocks."""

_SHARED, _KV_HEADS = 128, 2


def working_width(
    group: int,
    key_size: int,
    value_size: int,
    block_size: int,
    stored: torch.dtype,
    compiled: AttentionBackend,
) -> int | None:
    """Floats a vector for these sizes (`fitting_width`) over a cache of the type `stored`; None if
    there is no kernel for them, or `compiled`, which runs it, was seen to answer otherwise than
    the reference."""
    sizes = group, key_size, value_size, block_size
    width = fitting_width(*sizes)
    if width is None:
        return None
    kind = str(stored).removeprefix("torch.")
    name = f"attention, {group} to {key_size}/{value_size} in {block_size} {kind}, {width} wide"
    return width if works(name, "torch's SDPA", lambda: _check(compiled, stored, *sizes)) else None


def _check(
    compiled: AttentionBackend,
    stored: torch.dtype,
    group: int,
    key_size: int,
    value_size: int,
    block_size: int,
) -> None:
    query, layer, batch = example(group, key_size, value_size, block_size)
    layer = LayerCache(layer.keys.to(stored), layer.values.to(stored))
    for options in example_options(query):
        expected = reference_attention(query, layer, batch, options)
        expect(compiled(query, layer, batch, options), expected)


def example(
    group: int, key_size: int, value_size: int, block_size: int
) -> tuple[Tensor, LayerCache, PackedBatch]:
    """A query [T, Hq, Dk], a cache and a step that take every way through the kernel."""
    generator = torch.Generator().manual_seed(0)
    batch = _batch(block_size)
    blocks, rows = int(batch.block_tables.max()) + 1, sum(batch.query_lens)
    keys, values = (
        torch.randn(blocks, _KV_HEADS, block_size, size, generator=generator)
        for size in (key_size, value_size)
    )
    query = torch.randn(rows, _KV_HEADS * group, key_size, generator=generator)
    return query, LayerCache(keys, values), batch


def example_options(query: Tensor) -> tuple[AttentionOptions, ...]:
    """Plain attention, and everything that changes it at once."""
    _, heads, size = query.shape
    scale, sinks = size**-0.5, torch.linspace(-1, 2, heads)
    return (
        AttentionOptions(scale=scale),
        AttentionOptions(scale=scale, window=9, softcap=2.0, sinks=sinks),
    )


def _batch(block_size: int) -> PackedBatch:
    counts, contexts = zip(*_SEQUENCES, strict=True)
    width = -(-max(contexts) // block_size)
    tables = torch.arange(len(counts) * width).view(len(counts), width).flip(1)
    shared = _SHARED // block_size
    tables[:-1, :shared] = tables[0, :shared]
    return PackedBatch(
        query_starts=list(accumulate(counts, initial=0))[:-1],
        query_lens=list(counts),
        context_lens=list(contexts),
        block_tables=tables,
        slots=Slots(torch.zeros(sum(counts), 2, dtype=torch.int64)),
    )
