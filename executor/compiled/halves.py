"""Numbers that are stored in 16 bits and computed with in float32.

Widening is exact, so that a matrix kept in 16 bits gives the bits that its float32 copy gives, at
half the reads. A bfloat16 is the upper half of a float32: one shift or mask widens a vector.
"""

from __future__ import annotations

from typing import Any

import torch
from llvmlite import ir
from numba.core import cgutils, types

from executor.compiled.access import float_at
from executor.compiled.emit import FLOAT, INT, emitter, nothing, pointers, store
from executor.compiled.kernel import jit

FLOAT32, BFLOAT16, FLOAT16 = 0, 1, 2
"""How numbers are stored, as literals of kernels."""

STORED = {torch.float32: FLOAT32, torch.bfloat16: BFLOAT16, torch.float16: FLOAT16}
STORED_BYTES = (4, 2, 2)

_HALF, _BITS = ir.HalfType(), ir.IntType(32)


def load_line(builder: Any, address: Any, vectors: int, width: int, stored: int) -> list[Any]:
    """`vectors` vectors of float32 from a line of numbers; bfloat16 lies in pairs (`paired`)."""
    if stored == BFLOAT16:
        lines = range(0, vectors * width, 2 * width)
        return [v for line in lines for v in _pair(builder, address, line, width)]
    kind = FLOAT if stored == FLOAT32 else _HALF
    loaded = [_vector(builder, address, place * width, width, kind) for place in range(vectors)]
    if stored == FLOAT32:
        return loaded
    return [builder.fpext(vector, ir.VectorType(FLOAT, width)) for vector in loaded]


def load_in_order(builder: Any, address: Any, place: int, width: int, stored: int) -> Any:
    """A vector of float32 from numbers that lie one behind the other, that many places behind."""
    if stored == FLOAT32:
        return _vector(builder, address, place, width, FLOAT)
    if stored == FLOAT16:
        halves = _vector(builder, address, place, width, _HALF)
        return builder.fpext(halves, ir.VectorType(FLOAT, width))
    halves = _vector(builder, address, place, width, ir.IntType(16))
    bits = builder.zext(halves, ir.VectorType(_BITS, width))
    return builder.bitcast(builder.shl(bits, _spread(16, width)), ir.VectorType(FLOAT, width))


@emitter
def widen(
    typing: Any, source: Any, target: Any, rows: Any, size: Any, width: Any, stored: Any
) -> Any:
    """Turn `rows` times `size` numbers of the type `stored` into float32, at another address.

    `size` is a multiple of the vector's `width`; the last three are literals.
    """
    count, lanes, kind = (literal.literal_value for literal in (size, width, stored))

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        source, target, rows = arguments[:3]
        with cgutils.for_range_slice(builder, ir.Constant(INT, 0), rows, ir.Constant(INT, 1)) as (
            row,
            _unused,
        ):
            given = builder.add(source, builder.mul(row, _bytes(count * STORED_BYTES[kind])))
            made = builder.add(target, builder.mul(row, _bytes(count * 4)))
            (place,) = pointers(builder, [made])
            for d in range(0, count, lanes):
                store(builder, load_in_order(builder, given, d, lanes, kind), place, d)
        return nothing()

    return types.boolean(*[types.int64] * 3, size, width, stored), generate


def _bytes(count: int) -> Any:
    return ir.Constant(INT, count)


def _pair(builder: Any, address: Any, start: int, width: int) -> list[Any]:
    both = _vector(builder, address, start // 2, width, _BITS)
    low = builder.shl(both, _spread(16, width))
    high = builder.and_(both, _spread(-65536, width))
    return [builder.bitcast(half, ir.VectorType(FLOAT, width)) for half in (low, high)]


def _spread(number: int, width: int) -> Any:
    return ir.Constant(ir.VectorType(_BITS, width), [number] * width)


def _vector(builder: Any, address: Any, start: int, width: int, kind: Any) -> Any:
    base = builder.inttoptr(address, kind.as_pointer())
    place = builder.gep(base, [ir.Constant(INT, start)])
    return builder.load(builder.bitcast(place, ir.VectorType(kind, width).as_pointer()), align=2)


@emitter
def put_narrowed(typing: Any, address: Any, index: Any, value: Any) -> Any:
    """Store a float32 as the nearest bfloat16, that many places behind an address."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        narrow = ir.IntType(16)
        base = builder.inttoptr(arguments[0], narrow.as_pointer())
        bits = builder.bitcast(arguments[2], _BITS)
        odd = builder.and_(builder.lshr(bits, _BITS(16)), _BITS(1))
        rounded = builder.add(bits, builder.add(odd, _BITS(0x7FFF)))
        upper = builder.trunc(builder.lshr(rounded, _BITS(16)), narrow)
        builder.store(upper, builder.gep(base, [arguments[1]]))
        return nothing()

    return types.boolean(types.int64, types.int64, types.float32), generate


@jit
def narrow(source: int, target: int, size: int) -> None:
    """Round so many float32 at an address to bfloat16, to the nearest, ties to even."""
    for d in range(size):
        put_narrowed(target, d, float_at(source, d))
