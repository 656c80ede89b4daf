"""The attention kernel: each row of a packed batch reads its keys and values once, in blocks.

All query heads of a key head are scored together, with the softmax kept up as blocks come
(online softmax, Milakov and Gimelshein 2018; FlashAttention). Threads take one key head of one
row at a time, the longest row first. A prompt's tokens are rows as well. Head after head, so that
keys which several rows read, a prompt's or a shared prefix's, stay in a core's own cache.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import numba
import numpy as np
from numba import carray, types
from numpy.typing import NDArray

from executor import vectors
from executor.vectors import (
    copy_bytes,
    dots,
    float_at,
    int_at,
    mix,
    power_of_two,
    take_ticket,
    vector_width,
)

Floats = NDArray[np.float32]

MAX_GROUP = 16
"""More query heads to a key head than this would not fit the registers."""

ARGUMENTS = np.dtype(
    [
        ("query", np.int64),  # [T, Hq, Dk] at
        ("query_row", np.int64),  # its strides, in numbers
        ("query_head", np.int64),
        ("output", np.int64),  # [T, Hq, Dv], contiguous
        ("keys", np.int64),  # [N, Hkv, block_size, Dk], contiguous
        ("values", np.int64),  # [N, Hkv, block_size, Dv], contiguous
        ("kv_heads", np.int64),
        ("block_size", np.int64),
        ("count", np.int64),  # T rows
        ("order", np.int64),  # [T] int64: which first
        ("sequences", np.int64),  # [T] int64: whose each row is
        ("lengths", np.int64),  # [T] int64: up to which token it attends
        ("starts", np.int64),  # [T] int64: and from which
        ("tables", np.int64),  # [S, table_width] int64
        ("table_width", np.int64),
        ("prefixes", np.int64),  # [T] int64: place in the next two, or -1
        ("prefix_output", np.int64),  # [P, Hq, Dv]: attention over what lies before `starts`
        ("prefix_lse", np.int64),  # [P, Hq]: log of its sum of exponentials
        ("sinks", np.int64),  # [Hq], or 0
        ("counter", np.int64),  # int64, 0 at the beginning
        ("scale", np.float32),
        ("softcap", np.float32),  # or 0
    ],
    align=True,
)
"""What a kernel is given; fields without a shape are numbers, others addresses."""

TILE = 64
"""Keys scored before the softmax is brought up to date."""

_LOWEST = np.float32(-1e30)


@cache
def fitting_width(group: int, key_size: int, value_size: int, block_size: int) -> int | None:
    """Floats a vector for these sizes; None if there is no kernel for them."""
    sizes = (key_size, value_size, block_size)
    fits = (w for w in (16, 8) if w <= vector_width() and all(n % w == 0 for n in sizes))
    return next(fits, None) if group <= MAX_GROUP else None


@cache
def attention_kernel(group: int, key_size: int, value_size: int, width: int) -> int:
    """The address of the kernel void(ARGUMENTS*) for these sizes; call it on any threads."""
    kernel = _make(group, key_size, value_size, width)
    _kernels.append(kernel)
    return int(kernel.address)


_kernels: list[Any] = []
"""Keeps the code of every address given out."""


def _make(group: int, key_size: int, value_size: int, width: int) -> Any:
    # One function with constants in it alone: a closure over others would never be found again
    # in Numba's cache on disk. The cache knows this file and the constants; `revision` tells it
    # of the instructions, lest it keep those of an older release.
    revision = crc32(Path(vectors.__file__).read_bytes())

    def kernel(pointer):  # type: ignore[no-untyped-def]
        a = carray(pointer, 1)[0]
        query = np.empty((group, key_size), dtype=np.float32)
        scores = np.empty((group, TILE), dtype=np.float32)
        mixed = np.empty((group, value_size), dtype=np.float32)
        highest = np.empty(group, dtype=np.float32)
        total = np.empty(group, dtype=np.float32)
        ticket = take_ticket(a.counter)
        while revision >= 0 and ticket < a.count * a.kv_heads:
            row, head = int_at(a.order, ticket % a.count), ticket // a.count
            _begin(a, row, head, query, highest, total, mixed)
            position, length = int_at(a.starts, row), int_at(a.lengths, row)
            while position < length:
                place = position % a.block_size
                tile = place - place % TILE
                last = min(TILE, a.block_size - tile, length - position + place - tile)
                at = _token_at(a, row, position - place, head) + tile
                values = a.values + 4 * at * value_size
                dots(
                    query.ctypes.data, a.keys + 4 * at * key_size, scores.ctypes.data, last,
                    group, key_size, TILE, width,
                )  # fmt: skip
                first = place - tile
                _weigh(scores, first, last, a.scale, a.softcap, highest, total, mixed)
                mix(
                    scores.ctypes.data, values, mixed.ctypes.data, first, last,
                    group, value_size, TILE, width,
                )  # fmt: skip
                position += last - first
            _end(a, row, head, total, mixed)
            ticket = take_ticket(a.counter)

    signature = types.void(types.CPointer(numba.from_dtype(ARGUMENTS)))
    return numba.cfunc(signature, cache=True, error_model="numpy")(kernel)


def _jit(function: Any) -> Any:
    return numba.njit(fastmath=True, nogil=True, error_model="numpy", cache=True)(function)


@_jit
def _token_at(a: Any, row: int, position: int, head: int) -> int:
    """Where in the cache a token of the row's sequence lies, counted in tokens of a head."""
    table = a.tables + 8 * int_at(a.sequences, row) * a.table_width
    block = int_at(table, position // a.block_size)
    place: int = (block * a.kv_heads + head) * a.block_size + position % a.block_size
    return place


@_jit
def _begin(
    a: Any, row: int, head: int, query: Floats, highest: Floats, total: Floats, mixed: Floats
) -> None:
    """The queries, and the state before the first key: nothing, a sink, or a prefix's."""
    group = query.shape[0]
    for g in range(group):
        source = row * a.query_row + (head * group + g) * a.query_head
        copy_bytes(query[g].ctypes.data, a.query + 4 * source, 4 * query.shape[1])
        highest[g], total[g] = _LOWEST, np.float32(0)
        if a.sinks != 0:
            highest[g], total[g] = float_at(a.sinks, head * group + g), np.float32(1)
        mixed[g] = np.float32(0)
    if a.prefixes != 0 and int_at(a.prefixes, row) >= 0:
        at = (int_at(a.prefixes, row) * a.kv_heads + head) * group
        _add_prefix(a, at, highest, total, mixed)


@_jit
def _add_prefix(a: Any, at: int, highest: Floats, total: Floats, mixed: Floats) -> None:
    group, size = mixed.shape
    for g in range(group):
        lse = float_at(a.prefix_lse, at + g)
        top = max(lse, highest[g])
        weight = exponential(lse - top)
        total[g] = total[g] * exponential(highest[g] - top) + weight
        highest[g] = top
        for d in range(size):
            mixed[g, d] = weight * float_at(a.prefix_output, (at + g) * size + d)


@_jit
def _end(a: Any, row: int, head: int, total: Floats, mixed: Floats) -> None:
    group, size = mixed.shape
    for g in range(group):
        inverse = np.float32(1) / total[g]
        for d in range(size):
            mixed[g, d] *= inverse
    target = (row * a.kv_heads + head) * group * size
    copy_bytes(a.output + 4 * target, mixed.ctypes.data, 4 * group * size)


@_jit
def _weigh(
    scores: Floats, first: int, last: int, scale: np.float32, softcap: np.float32,
    highest: Floats, total: Floats, mixed: Floats,
) -> None:  # fmt: skip
    """Turn scores [first, last) into weights, and the state so far to the new maximum."""
    for g in range(scores.shape[0]):
        row = scores[g]
        top = highest[g]
        for t in range(first, last):
            row[t] *= scale
            if softcap > 0:
                row[t] = softcap * np.float32(math.tanh(row[t] / softcap))
            top = max(top, row[t])
        added = np.float32(0)
        for t in range(first, last):
            weight = exponential(row[t] - top)
            row[t] = weight
            added += weight
        if top > highest[g]:
            shrink = exponential(highest[g] - top)
            highest[g] = top
            total[g] *= shrink
            for d in range(mixed.shape[1]):
                mixed[g, d] *= shrink
        total[g] += added


@numba.njit(fastmath={"contract", "nsz"}, inline="always")  # type: ignore[untyped-decorator]
def exponential(x: np.float32) -> np.float32:
    """e ** x for x <= 0 within 3 units in the last place; 0 from where it would be denormal.

    2 ** n times a polynomial on half an octave either side (Cephes' coefficients), which
    becomes vector code where a call into the C library would not.
    """
    bounded = max(x, np.float32(-87.0))
    n = np.int32(bounded * np.float32(1.44269504) - np.float32(0.5))
    f = np.float32(n)
    r = (bounded - f * np.float32(0.693359375)) - f * np.float32(-2.12194440e-4)
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    result = (p * r * r + r + np.float32(1)) * power_of_two(n)
    return result if x > np.float32(-87.0) else np.float32(0)


@_jit
def write_rows(
    source: int, row_bytes: int, head_bytes: int, target: int, places: Any, kv_heads: int,
    block_size: int, token_bytes: int,
) -> None:  # fmt: skip
    """Copy the new keys (or values) of a step to their places in the cache.

    Args:
        source: address of [T, Hkv, D], whose first two strides are given in bytes.
        target: address of [N, Hkv, block_size, D], contiguous.
        places: [T, 2] int64, block and offset of each token.
    """
    for row in range(places.shape[0]):
        for head in range(kv_heads):
            token = (places[row, 0] * kv_heads + head) * block_size + places[row, 1]
            start = source + row * row_bytes + head * head_bytes
            copy_bytes(target + token * token_bytes, start, token_bytes)
