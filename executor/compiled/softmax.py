"""Exponentials, and what attention and gates make of them."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

from executor.compiled.emit import (
    broadcast,
    constant,
    emitter,
    fma,
    higher,
    load,
    nothing,
    pointers,
    shuffle,
    signature,
    store,
)


@emitter
def exponential(typing: Any, x: Any) -> Any:
    """e ** x as float32 for x <= 0, within 3 units in the last place; 0 from -87 on."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return emit_exponential(builder, arguments[0])

    return types.float32(types.float32), generate


def emit_exponential(builder: Any, x: Any) -> Any:
    """2 ** n times a polynomial on half an octave either side (Cephes' coefficients).

    `x` is a number or a vector of them, at most 0.
    """
    lowest = constant(x.type, -87.0)
    bounded = higher(builder, x, lowest)
    octaves = fma(builder, bounded, constant(x.type, 1.44269504), constant(x.type, -0.5))
    whole = builder.fptosi(octaves, _like(x.type, ir.IntType(32)))
    n = builder.sitofp(whole, x.type)
    r = fma(builder, n, constant(x.type, -0.693359375), bounded)
    r = fma(builder, n, constant(x.type, 2.12194440e-4), r)
    p = constant(x.type, _EXPONENTIAL[0])
    for coefficient in _EXPONENTIAL[1:]:
        p = fma(builder, p, r, constant(x.type, coefficient))
    linear = builder.fadd(r, constant(x.type, 1.0))
    biased = builder.add(whole, constant(whole.type, 127))
    power = builder.bitcast(builder.shl(biased, constant(whole.type, 23)), x.type)
    result = builder.fmul(fma(builder, p, builder.fmul(r, r), linear), power)
    inside = builder.fcmp_ordered(">", x, lowest)
    return builder.select(inside, result, constant(x.type, 0.0))


_EXPONENTIAL = (
    1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
    5.0000001201e-1,
)  # fmt: skip


@emitter
def gate(typing: Any, pairs: Any, product: Any, width: Any) -> Any:
    """product = silu(gate) * up, for `width` gates followed by as many ups.

    Addresses of float32; `width` is a literal.
    """
    lanes = width.literal_value

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        pairs, product = pointers(builder, arguments[:2])
        gates, ups = (load(builder, pairs, n * lanes, lanes) for n in range(2))
        zero, one = (constant(gates.type, n) for n in (0.0, 1.0))
        falling = higher(builder, gates, builder.fsub(zero, gates))
        small = emit_exponential(builder, builder.fsub(zero, falling))
        above = builder.select(builder.fcmp_ordered("<", gates, zero), small, one)
        silu = builder.fdiv(builder.fmul(gates, above), builder.fadd(one, small))
        store(builder, builder.fmul(silu, ups), product, 0)
        return nothing()

    return signature(2, width), generate


@emitter
def soften(
    typing: Any, scores: Any, first: Any, last: Any, highest: Any, total: Any, mixed: Any,
    keys: Any, size: Any, width: Any,
) -> Any:  # fmt: skip
    """Turn one query's scores into weights, and its state so far to the new maximum.

    Addresses of float32 [keys], of the highest score and the sum of weights so far, and of
    [size], what these weights have mixed. Scores outside [first, last) become 0. The last three
    are literals; `keys` and `size` are multiples of `width`.
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
    weights = [emit_exponential(builder, builder.fsub(row, spread)) for row in rows]
    for t, weight in zip(range(0, keys, width), weights, strict=True):
        store(builder, weight, scores, t)
    added = _over_all(builder, weights, lambda b, one, other: b.fadd(one, other))
    with builder.if_then(builder.fcmp_ordered(">", top, before)):
        shrink = emit_exponential(builder, builder.fsub(before, top))
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


def _like(kind: Any, element: Any) -> Any:
    return ir.VectorType(element, kind.count) if isinstance(kind, ir.VectorType) else element
