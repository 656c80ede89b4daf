"""Scores of attention to weights, tile after tile, with the softmax kept up."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from executor.compiled.emit import (
    broadcast,
    constant,
    emitter,
    higher,
    integer,
    load,
    nothing,
    pointers,
    shuffle,
    signature,
    store,
)
from executor.compiled.exponential import emit_power_of_two


@emitter
def soften(
    typing: Any, scores: Any, first: Any, last: Any, highest: Any, total: Any, mixed: Any,
    keys: Any, size: Any, width: Any,
) -> Any:  # fmt: skip
    """Turn one query's scores into weights, and its state so far to the new maximum.

    Addresses of float32 [keys], of the highest score and the sum of weights so far, and of
    [size], what these weights have mixed. Scores are powers of two; those outside [first, last)
    count for nothing. The last three are literals; `keys` and `size` are multiples of `width`.
    """
    shape = [kind.literal_value for kind in (keys, size, width)]

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        scores, highest, total, mixed = pointers(builder, arguments[:1] + arguments[3:6])
        _emit_soften(builder, scores, arguments[1:3], highest, total, mixed, *shape)
        return nothing()

    return signature(6, keys, size, width), generate


def _emit_soften(
    builder: Any, scores: Any, seen: Any, highest: Any, total: Any, mixed: Any,
    keys: int, size: int, width: int,
) -> None:  # fmt: skip
    rows = [
        _only(builder, load(builder, scores, t, width), t, *seen) for t in range(0, keys, width)
    ]
    before = builder.load(highest)
    top = _over_all(builder, rows, higher)
    top = higher(builder, top, before)
    spread = broadcast(builder, top, width)
    weights = [emit_power_of_two(builder, builder.fsub(row, spread)) for row in rows]
    for t, weight in zip(range(0, keys, width), weights, strict=True):
        store(builder, weight, scores, t)
    added = _over_all(builder, weights, lambda b, one, other: b.fadd(one, other))
    with builder.if_then(builder.fcmp_ordered(">", top, before)):
        shrink = emit_power_of_two(builder, builder.fsub(before, top))
        builder.store(top, highest)
        builder.store(builder.fmul(shrink, builder.load(total)), total)
        factor = broadcast(builder, shrink, width)
        for d in range(0, size, width):
            store(builder, builder.fmul(factor, load(builder, mixed, d, width)), mixed, d)
    builder.store(builder.fadd(builder.load(total), added), total)


def _only(builder: Any, vector: Any, start: int, first: Any, last: Any) -> Any:
    """The lanes whose place, from `start` on, is in [first, last); the others at -infinity."""
    int32, width = ir.IntType(32), vector.type.count
    places = ir.Constant(ir.VectorType(int32, width), list(range(start, start + width)))
    begin, end = (broadcast(builder, builder.trunc(n, int32), width) for n in (first, last))
    inside = builder.and_(
        builder.icmp_signed(">=", places, begin), builder.icmp_signed("<", places, end)
    )
    return builder.select(inside, vector, constant(vector.type, float("-inf")))


def _over_all(builder: Any, vectors: list[Any], combine: Any) -> Any:
    """One number out of all lanes of some vectors."""
    while len(vectors) > 1:
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [combine(builder, one, other) for one, other in pairs]
    (vector,) = vectors
    width = vector.type.count
    distance = width // 2
    while distance:
        lanes = [lane ^ distance for lane in range(width)]
        vector = combine(builder, vector, shuffle(builder, vector, vector, lanes))
        distance //= 2
    return builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))


@emitter
def soften_columns(
    typing: Any, scores: Any, position: Any, starts: Any, ends: Any, highest: Any, total: Any,
    shrink: Any, keys: Any, vectors: Any, masked: Any, width: Any,
) -> Any:  # fmt: skip
    """Turn a tile of scores, a column for each query, into weights.

    Addresses of float32 scores [keys, vectors * width], and of [vectors * width] the highest
    score and the sum of weights so far, and by what that of before shrinks. The tile's keys are
    those from `position` on; if `masked` is 1, a query takes part from its own one of `starts` to
    its one of `ends` (addresses of int32 [vectors * width]). The last four are literals; `keys`
    is a multiple of 4.
    """
    shape = [kind.literal_value for kind in (keys, vectors, masked, width)]

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        addresses = pointers(builder, [arguments[0], *arguments[2:7]])
        _emit_soften_columns(builder, arguments[1], *addresses, *shape)
        return nothing()

    return signature(7, keys, vectors, masked, width), generate


_AT_ONCE = 4
"""Keys whose scores are compared at a time: a maximum takes longer than the next one waits."""


def _emit_soften_columns(
    builder: Any, position: Any, scores: Any, starts: Any, ends: Any, highest: Any, total: Any,
    shrink: Any, keys: int, vectors: int, masked: int, width: int,
) -> None:  # fmt: skip
    columns = range(0, vectors * width, width)
    row_numbers = integer(vectors * width)
    before = [load(builder, highest, c, width) for c in columns]
    tops = [[cgutils.alloca_once_value(builder, top) for _ in range(_AT_ONCE)] for top in before]
    spans = [[_integers(builder, edge, c, width) for edge in (starts, ends)] for c in columns]
    with cgutils.for_range_slice(builder, integer(0), integer(keys), integer(_AT_ONCE)) as (t, _):
        for step in range(_AT_ONCE):
            key = builder.add(t, integer(step))
            row = builder.gep(scores, [builder.mul(key, row_numbers)])
            for c, top, span in zip(columns, tops, spans, strict=True):
                score = load(builder, row, c, width)
                if masked:
                    score = _within(builder, score, builder.add(position, key), *span)
                    store(builder, score, row, c)
                builder.store(higher(builder, score, builder.load(top[step])), top[step])
    reached = [_highest(builder, [builder.load(place) for place in top]) for top in tops]
    sums = []
    for c, old, new in zip(columns, before, reached, strict=True):
        factor = emit_power_of_two(builder, builder.fsub(old, new))
        store(builder, factor, shrink, c)
        store(builder, new, highest, c)
        kept = builder.fmul(factor, load(builder, total, c, width))
        sums.append(cgutils.alloca_once_value(builder, kept))
    with cgutils.for_range_slice(builder, integer(0), integer(keys), integer(1)) as (t, _):
        row = builder.gep(scores, [builder.mul(t, row_numbers)])
        for c, new, added in zip(columns, reached, sums, strict=True):
            score = load(builder, row, c, width)
            weight = emit_power_of_two(builder, builder.fsub(score, new))
            store(builder, weight, row, c)
            builder.store(builder.fadd(builder.load(added), weight), added)
    for c, added in zip(columns, sums, strict=True):
        store(builder, builder.load(added), total, c)


def _highest(builder: Any, vectors: list[Any]) -> Any:
    top, *others = vectors
    for other in others:
        top = higher(builder, top, other)
    return top


def _integers(builder: Any, base: Any, offset: int, width: int) -> Any:
    place = builder.gep(base, [integer(offset)])
    kind = ir.VectorType(ir.IntType(32), width)
    return builder.load(builder.bitcast(place, kind.as_pointer()), align=4)


def _within(builder: Any, scores: Any, key: Any, starts: Any, ends: Any) -> Any:
    """The scores of the queries that see the key; the others at -infinity."""
    int32 = ir.IntType(32)
    place = broadcast(builder, builder.trunc(key, int32), scores.type.count)
    inside = builder.and_(
        builder.icmp_signed(">=", place, starts), builder.icmp_signed("<", place, ends)
    )
    return builder.select(inside, scores, constant(scores.type, float("-inf")))
