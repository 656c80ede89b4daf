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
from executor.attention.kernel import ARGUMENTS, attention_kernel, fitting_width
from executor.attention.sdpa import sdpa_attention
from executor.attention.team import run_together

Ints = NDArray[np.int64]


def cpu_attention(
    query: Tensor, layer: LayerCache, batch: PackedBatch, options: AttentionOptions
) -> Tensor:
    """See `AttentionBackend`. The kernel is for float32 and sizes that fill vectors."""
    kv_heads, block_size, key_size = layer.keys.shape[1:]
    value_size = layer.values.shape[3]
    group = query.shape[1] // kv_heads
    width = fitting_width(group, key_size, value_size, block_size)
    if query.dtype != torch.float32 or width is None:
        return sdpa_attention(query, layer, batch, options)
    output = query.new_empty(*query.shape[:2], value_size)
    rows = _rows(batch, options.window)
    kernel = attention_kernel(group, key_size, value_size, width)
    _call(kernel, query, layer, rows, options, output)
    return output


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What the kernel must know of each row of a step; the same in all layers of one window.

    `given` holds the arrays' addresses (`kernel.ARGUMENTS`), which they outlive.
    """

    arrays: dict[str, Ints]
    given: Any
    counter: Ints


def _rows(batch: PackedBatch, window: int | None) -> Rows:
    def make() -> Rows:
        lengths = np.concatenate(
            [
                np.arange(context - count + 1, context + 1)
                for context, count in zip(batch.context_lens, batch.query_lens, strict=True)
            ]
        )
        starts = np.zeros_like(lengths) if window is None else np.maximum(lengths - window, 0)
        arrays = {
            "sequences": np.repeat(np.arange(len(batch.query_lens)), batch.query_lens),
            "lengths": lengths,
            "starts": starts,
            "order": np.argsort(starts - lengths, kind="stable"),
            "tables": batch.block_tables.numpy(),
        }
        return rows_of(arrays)

    rows: Rows = batch.once(("rows", window), make)
    return rows


def rows_of(arrays: dict[str, Ints]) -> Rows:
    given, counter = np.zeros(1, ARGUMENTS), np.zeros(1, np.int64)
    for name, array in arrays.items():
        given[name] = array.ctypes.data
    given["count"] = len(arrays["lengths"])
    given["table_width"] = arrays["tables"].shape[1]
    given["counter"] = counter.ctypes.data
    return Rows(arrays=arrays, given=given, counter=counter)


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
    given["query"] = query.data_ptr()
    given["query_row"], given["query_head"], _ = query.stride()
    given["output"] = output.data_ptr()
    given["keys"], given["values"] = layer.keys.data_ptr(), layer.values.data_ptr()
    given["kv_heads"], given["block_size"] = layer.keys.shape[1:3]
    given["sinks"] = 0 if sinks is None else sinks.data_ptr()
    given["scale"], given["softcap"] = options.scale, options.softcap or 0
    rows.counter[0] = 0
    run_together(kernel, rows.given.ctypes.data)
