"""Few vectors against many: scores of queries, and mixtures of values."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from executor.compiled.emit import (
    CACHE_LINE,
    FLOAT,
    NEAREST,
    broadcast,
    emitter,
    fetch,
    fma,
    integer,
    load,
    nothing,
    pointers,
    shuffle,
    signature,
    store,
)
from executor.compiled.halves import STORED_BYTES, load_in_order

_ACCUMULATORS = {16: 24, 8: 12}
"""Vector registers that hold sums, by the width: of 32 with AVX-512, of 16 without."""


@emitter
def dots(
    typing: Any, query: Any, key: Any, scores: Any, last: Any, ahead: Any,
    group: Any, size: Any, keys: Any, width: Any, stored: Any,
) -> Any:  # fmt: skip
    """Products of `group` queries with keys [0, last), `size` numbers each.

    Addresses of float32 [group, size], of keys [keys, size] of the type `stored` and of float32
    [group, keys]; `last` is rounded up to the vector's `width`, of which `size` and `keys` are
    multiples. Meanwhile as many keys are fetched from `ahead`. The last five are literals.
    """
    shape = [kind.literal_value for kind in (group, size, keys, width, stored)]

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        query, scores = pointers(builder, [arguments[0], arguments[2]])
        _emit_dots(builder, query, arguments[1], scores, *arguments[3:5], *shape)
        return nothing()

    return signature(5, group, size, keys, width, stored), generate


def _share(count: int, part: int, parts: int) -> tuple[int, int]:
    """From where to where one of some about equal parts goes, in whole cache lines."""
    lines = -(-count // CACHE_LINE)
    return CACHE_LINE * (lines * part // parts), CACHE_LINE * (lines * (part + 1) // parts)


def _emit_dots(
    builder: Any, query: Any, key: Any, scores: Any, last: Any, ahead: Any,
    group: int, size: int, keys: int, width: int, stored: int,
) -> None:  # fmt: skip
    key_bytes = STORED_BYTES[stored] * size
    with cgutils.for_range_slice(builder, integer(0), last, integer(width)) as (first, _):
        behind = builder.mul(first, integer(key_bytes))
        tile = builder.add(key, behind)
        (following,) = pointers(builder, [builder.add(ahead, behind)])
        for g in range(group):
            fetch(builder, following, *_share(width * key_bytes, g, group), NEAREST)
            sums = [ir.Constant(ir.VectorType(FLOAT, width), None)] * width
            for part in range(0, size, width):
                of_query = load(builder, query, g * size + part, width)
                for k in range(width):
                    of_key = load_in_order(builder, tile, k * size + part, width, stored)
                    sums[k] = fma(builder, of_query, of_key, sums[k])
            target = builder.gep(scores, [builder.add(first, integer(g * keys))])
            store(builder, _sum_each(builder, sums), target, 0)


@emitter
def mix(
    typing: Any, weights: Any, value: Any, mixed: Any, first: Any, last: Any, ahead: Any,
    group: Any, size: Any, keys: Any, width: Any, stored: Any,
) -> Any:  # fmt: skip
    """Add values [first, last), weighted, to the sum of each of `group` queries.

    Addresses of float32 [group, keys], of values [keys, size] of the type `stored` and of float32
    [group, size]; the last five are literals, and `size` is a multiple of `width`. Meanwhile as
    many values are fetched from `ahead`.
    """
    shape = [kind.literal_value for kind in (group, size, keys, width, stored)]

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        weights, mixed = pointers(builder, [arguments[0], arguments[2]])
        _emit_mix(builder, weights, arguments[1], mixed, *arguments[3:6], *shape)
        return nothing()

    return signature(6, group, size, keys, width, stored), generate


def _emit_mix(
    builder: Any, weights: Any, value: Any, mixed: Any, first: Any, last: Any, ahead: Any,
    group: int, size: int, keys: int, width: int, stored: int,
) -> None:  # fmt: skip
    number_bytes = STORED_BYTES[stored]
    together = width * max(1, _ACCUMULATORS[width] // group)
    for start in range(0, size, together):
        parts = range(start, min(start + together, size), width)
        places = {(g, part): g * size + part for g in range(group) for part in parts}
        sums = {
            at: cgutils.alloca_once_value(builder, load(builder, mixed, place, width))
            for at, place in places.items()
        }
        with cgutils.for_range_slice(builder, first, last, integer(1)) as (t, _):
            behind = builder.mul(t, integer(number_bytes * size))
            row = builder.add(value, behind)
            (following,) = pointers(builder, [builder.add(ahead, behind)])
            stop = min(start + together, size)
            fetch(builder, following, number_bytes * start, number_bytes * stop, NEAREST)
            loaded = {part: load_in_order(builder, row, part, width, stored) for part in parts}
            for g in range(group):
                weight = builder.gep(weights, [builder.add(t, integer(g * keys))])
                spread = broadcast(builder, builder.load(weight), width)
                for part in parts:
                    total = builder.load(sums[g, part])
                    builder.store(fma(builder, spread, loaded[part], total), sums[g, part])
        for at, place in places.items():
            store(builder, builder.load(sums[at]), mixed, place)


@emitter
def scale(typing: Any, source: Any, factor: Any, target: Any, size: Any, width: Any) -> Any:
    """target = factor * source, for `size` numbers, a multiple of the vector's `width`.

    Addresses of float32, which may be the same; the last two are literals.
    """
    count, lanes = size.literal_value, width.literal_value

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        of, to = pointers(builder, [arguments[0], arguments[2]])
        spread = broadcast(builder, arguments[1], lanes)
        for d in range(0, count, lanes):
            store(builder, builder.fmul(spread, load(builder, of, d, lanes)), to, d)
        return nothing()

    return types.boolean(types.int64, types.float32, types.int64, size, width), generate


@emitter
def add_line(typing: Any, one: Any, other: Any, total: Any, size: Any, width: Any) -> Any:
    """total = one + other, for `size` numbers, a multiple of the vector's `width`.

    Addresses of float32, of which `total` may be one of the others; the last two are literals.
    """
    count, lanes = size.literal_value, width.literal_value

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        left, right, to = pointers(builder, arguments[:3])
        for d in range(0, count, lanes):
            added = builder.fadd(load(builder, left, d, lanes), load(builder, right, d, lanes))
            store(builder, added, to, d)
        return nothing()

    return signature(3, size, width), generate


def _sum_each(builder: Any, vectors: list[Any]) -> Any:
    """A vector whose lane l is the sum of vector l: a butterfly, half as many at every level."""
    width = len(vectors)
    distance = width // 2
    while distance:
        lanes = range(width)
        kept = [lane + width if lane & distance else lane for lane in lanes]
        crossed = [
            lane + width - distance if lane & distance else lane + distance for lane in lanes
        ]
        vectors = [
            builder.fadd(
                shuffle(builder, vectors[i], vectors[i + distance], kept),
                shuffle(builder, vectors[i], vectors[i + distance], crossed),
            )
            for i in range(distance)
        ]
        distance //= 2
    return vectors[0]
