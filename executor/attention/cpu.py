"""Decode attention on CPU: a Numba kernel that reads each sequence's paged keys and values once.

No gather, no padding to the longest neighbour, and the query heads that share a key head are
scored together. Prefill goes through torch, whose matrix products are hard to beat there.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from executor.attention.base import AttentionOptions, LayerCache, PackedBatch
from executor.attention.reference import reference_attention
from executor.attention.sdpa import prefill, sdpa_attention

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

_NO_SINKS = np.empty(0, dtype=np.float32)


def cpu_attention(
    query: Tensor, layer: LayerCache, batch: PackedBatch, options: AttentionOptions
) -> Tensor:
    """See `AttentionBackend`. The kernel is for float32; other types go through torch."""
    if query.dtype != torch.float32:
        return sdpa_attention(query, layer, batch, options)
    plain = options.softcap is None and options.sinks is None
    if batch.prefilling and not plain:
        return reference_attention(query, layer, batch, options)
    output = query.new_empty(*query.shape[:2], layer.values.shape[-1])
    if batch.decoding:
        output[batch.decoding_rows] = decode(query[batch.decoding_rows], layer, batch, options)
    prefill(output, query, layer, batch, options)
    return output


def decode(
    query: Tensor, layer: LayerCache, batch: PackedBatch, options: AttentionOptions
) -> Tensor:
    """Queries [D, Hq, Dk] of the decoding sequences, in their order, to outputs [D, Hq, Dv]."""
    output = query.new_empty(*query.shape[:2], layer.values.shape[-1])
    _decode_kernel(
        query.numpy(),
        layer.keys.numpy(),
        layer.values.numpy(),
        batch.decoding_tables.numpy(),
        batch.decoding_lens.numpy(),
        np.float32(options.scale),
        options.window or 0,
        np.float32(options.softcap or 0),
        _NO_SINKS if options.sinks is None else options.sinks.detach().float().numpy(),
        output.numpy(),
    )
    return output


def _jit(function: Any) -> Any:
    return numba.njit(parallel=True, fastmath=True, cache=True, nogil=True)(function)


@_jit
def _decode_kernel(
    query: Floats,  # [D, Hq, Dk]
    keys: Floats,  # [N, Hkv, block_size, Dk]
    values: Floats,  # [N, Hkv, block_size, Dv]
    tables: Ints,  # [D, M]
    lengths: Ints,  # [D]
    scale: np.float32,
    window: int,  # 0: none
    softcap: np.float32,  # 0: none
    sinks: Floats,  # [Hq] or empty
    output: Floats,  # [D, Hq, Dv]
) -> None:
    kv_heads, block_size, key_size = keys.shape[1:]
    value_size = values.shape[3]
    group = query.shape[1] // kv_heads
    for item in numba.prange(query.shape[0] * kv_heads):
        sequence, head = item // kv_heads, item % kv_heads
        length = lengths[sequence]
        first = max(0, length - window) if window > 0 else 0
        scores = np.empty((group, length - first), dtype=np.float32)
        for position in range(first, length):
            block = tables[sequence, position // block_size]
            key = keys[block, head, position % block_size]
            for g in range(group):
                row = query[sequence, head * group + g]
                total = np.float32(0)
                for d in range(key_size):
                    total += row[d] * key[d]
                score = total * scale
                if softcap > 0:
                    score = softcap * np.float32(math.tanh(score / softcap))
                scores[g, position - first] = score
        for g in range(group):
            highest = scores[g].max()
            if sinks.size > 0:
                highest = max(highest, sinks[head * group + g])
            weight_sum = np.float32(0)
            for i in range(length - first):
                scores[g, i] = np.float32(math.exp(scores[g, i] - highest))
                weight_sum += scores[g, i]
            if sinks.size > 0:
                weight_sum += np.float32(math.exp(sinks[head * group + g] - highest))
            for i in range(length - first):
                scores[g, i] /= weight_sum
        mixed = np.zeros((group, value_size), dtype=np.float32)
        for position in range(first, length):
            block = tables[sequence, position // block_size]
            value = values[block, head, position % block_size]
            for g in range(group):
                weight = scores[g, position - first]
                for d in range(value_size):
                    mixed[g, d] += weight * value[d]
        for g in range(group):
            output[sequence, head * group + g] = mixed[g]
