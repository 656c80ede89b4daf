"""Attention on CPU by the compiled kernel: no gather, no mask, no padding, one call a layer.

What the kernel is not made for (number types, odd sizes) goes through torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from executor.attention.base import AttentionOptions, LayerCache, PackedBatch
from executor.attention.cascade import (
    SharedPrefix,
    attend_prefix,
    block_places,
    can_cascade,
    shared_prefixes,
)
from executor.attention.kernel import ARGUMENTS, attention_kernel, fitting_width
from executor.attention.sdpa import sdpa_attention
from executor.team import run_together

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CpuAttention:
    """See `AttentionBackend`. The kernel is for float32 and sizes that fill vectors."""

    cascade: bool = True
    """Whether prefixes that rows share are attended for all of them at once."""

    def __call__(
        self, query: Tensor, layer: LayerCache, batch: PackedBatch, options: AttentionOptions
    ) -> Tensor:
        kv_heads, block_size, key_size = layer.keys.shape[1:]
        value_size = layer.values.shape[3]
        group = query.shape[1] // kv_heads
        width = fitting_width(group, key_size, value_size, block_size)
        if query.dtype != torch.float32 or width is None:
            return sdpa_attention(query, layer, batch, options)
        cascade = self.cascade and can_cascade(layer, options)
        rows = _rows(batch, options.window, block_size if cascade else None, kv_heads)
        output = query.new_empty(*query.shape[:2], value_size)
        kernel = attention_kernel(group, key_size, value_size, width)
        _call(kernel, query, layer, rows, options, output)
        return output


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixRows:
    """The rows [R] int64 of a shared prefix, and where its blocks lie (`cascade`)."""

    rows: Tensor
    places: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What the kernel must know of each row of a step; the same in all layers of one kind.

    `given` holds the addresses of the arrays (`kernel.ARGUMENTS`), which they outlive. The
    prefixes' rows are, one after the other, those that `arrays["prefixes"]` counts.
    """

    arrays: dict[str, Ints]
    given: Any
    counter: Ints
    prefixes: tuple[PrefixRows, ...]


def _rows(
    batch: PackedBatch, window: int | None, cascade_blocks: int | None, kv_heads: int
) -> Rows:
    def make() -> Rows:
        shared = [] if cascade_blocks is None else shared_prefixes(batch, cascade_blocks)
        return _describe(batch, window, shared, cascade_blocks or 0, kv_heads)

    rows: Rows = batch.once(("rows", window, cascade_blocks, kv_heads), make)
    return rows


def _describe(
    batch: PackedBatch,
    window: int | None,
    shared: list[SharedPrefix],
    block_size: int,
    kv_heads: int,
) -> Rows:
    lengths = np.concatenate(
        [
            np.arange(context - count + 1, context + 1)
            for context, count in zip(batch.context_lens, batch.query_lens, strict=True)
        ]
    )
    sequences = np.repeat(np.arange(len(batch.query_lens)), batch.query_lens)
    starts = np.zeros_like(lengths) if window is None else np.maximum(lengths - window, 0)
    places, prefixes, total = np.full_like(lengths, -1), [], 0
    for prefix in shared:
        rows = np.flatnonzero(np.isin(sequences, prefix.sequences))
        starts[rows] = len(prefix.blocks) * block_size
        places[rows] = np.arange(total, total + len(rows))
        total += len(rows)
        at = block_places(prefix.blocks, kv_heads)
        prefixes.append(PrefixRows(rows=torch.from_numpy(rows), places=at))
    arrays = {
        "sequences": sequences,
        "lengths": lengths,
        "starts": starts,
        "order": np.argsort(starts - lengths, kind="stable"),
        "tables": batch.block_tables.numpy(),
    }
    if prefixes:
        arrays["prefixes"] = places
    given, counter = np.zeros(1, ARGUMENTS), np.zeros(1, np.int64)
    for name, array in arrays.items():
        given[name] = array.ctypes.data
    given["count"], given["table_width"] = len(lengths), batch.block_tables.shape[1]
    given["counter"] = counter.ctypes.data
    return Rows(arrays=arrays, given=given, counter=counter, prefixes=tuple(prefixes))


def _call(
    kernel: int,
    query: Tensor,
    layer: LayerCache,
    rows: Rows,
    options: AttentionOptions,
    output: Tensor,
) -> None:
    if query.stride(2) != 1:
        query = query.contiguous()
    sinks = None if options.sinks is None else options.sinks.detach().float().contiguous()
    given = rows.given[0]
    # Held until the kernel has run: it is given addresses only.
    before = [
        attend_prefix(query[prefix.rows], layer, prefix.places, options.scale)
        for prefix in rows.prefixes
    ]
    if before:
        outputs, sums = (torch.cat(parts) for parts in zip(*before, strict=True))
        given["prefix_output"], given["prefix_lse"] = outputs.data_ptr(), sums.data_ptr()
    given["query"] = query.data_ptr()
    given["query_row"], given["query_head"], _ = query.stride()
    given["output"] = output.data_ptr()
    given["keys"], given["values"] = layer.keys.data_ptr(), layer.values.data_ptr()
    given["kv_heads"], given["block_size"] = layer.keys.shape[1:3]
    given["sinks"] = 0 if sinks is None else sinks.data_ptr()
    given["scale"], given["softcap"] = options.scale, options.softcap or 0
    rows.counter[0] = 0
    run_together(kernel, rows.given.ctypes.data)
