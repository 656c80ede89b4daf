"""Vector code written as LLVM instructions: what the other modules build theirs of.

Numba turns loops into vectors well but keeps their results in memory between loops; here sums
stay in registers. Addresses are plain integers and sizes are fixed when a function is made, so
that everything unrolls. Runs on any CPU that LLVM knows.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from executor.compiled.processor import has_feature

FLOAT = ir.FloatType()
INT = ir.IntType(64)
CACHE_LINE = 64

NEAREST, SECOND = 3, 2
"""Of a core's caches, as LLVM counts them."""


def emitter(function: Any) -> Any:
    return intrinsic(prefer_literal=True)(function)


def vector_width() -> int:
    """Floats that kernels compute with at a time: 16 with AVX-512, else 8, which are one register
    with AVX2 and two with NEON, of which there are twice as many."""
    return 16 if has_feature("avx512f") else 8


def signature(integers: int, *literals: Any) -> Any:
    return types.boolean(*[types.int64] * integers, *literals)


def pointers(builder: Any, addresses: Any) -> list[Any]:
    return [builder.inttoptr(address, FLOAT.as_pointer()) for address in addresses]


def nothing() -> Any:
    return ir.Constant(ir.IntType(1), 0)


def integer(value: int) -> Any:
    return ir.Constant(INT, value)


def load(builder: Any, base: Any, offset: int, width: int) -> Any:
    return builder.load(_vector_at(builder, base, offset, width), align=4)


def store(builder: Any, vector: Any, base: Any, offset: int) -> None:
    builder.store(vector, _vector_at(builder, base, offset, vector.type.count), align=4)


def _vector_at(builder: Any, base: Any, offset: int, width: int) -> Any:
    place = builder.gep(base, [integer(offset)])
    return builder.bitcast(place, ir.VectorType(FLOAT, width).as_pointer())


def fma(builder: Any, left: Any, right: Any, added: Any) -> Any:
    kind = left.type
    name = f"v{kind.count}f32" if isinstance(kind, ir.VectorType) else "f32"
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(kind, [kind] * 3), f"llvm.fma.{name}"
    )
    return builder.call(function, [left, right, added])


def broadcast(builder: Any, number: Any, width: int) -> Any:
    vector = ir.VectorType(number.type, width)
    one = builder.insert_element(
        ir.Constant(vector, ir.Undefined), number, ir.Constant(ir.IntType(32), 0)
    )
    return shuffle(builder, one, one, [0] * width)


def shuffle(builder: Any, left: Any, right: Any, lanes: list[int]) -> Any:
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)
    return builder.shuffle_vector(left, right, mask)


def constant(kind: Any, value: float) -> Any:
    if isinstance(kind, ir.VectorType):
        return ir.Constant(kind, [value] * kind.count)
    return ir.Constant(kind, value)


def higher(builder: Any, one: Any, other: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", one, other), one, other)


def fetch(builder: Any, base: Any, start: int, stop: int, cache: int) -> None:
    """Ask for the bytes [start, stop) behind an address to be brought into a cache."""
    byte, int32 = ir.IntType(8).as_pointer(), ir.IntType(32)
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(ir.VoidType(), [byte, int32, int32, int32]),
        "llvm.prefetch.p0i8",
    )
    reading, level, data = (ir.Constant(int32, n) for n in (0, cache, 1))
    for line in range(start, stop, CACHE_LINE):
        place = builder.gep(builder.bitcast(base, byte), [integer(line)])
        builder.call(function, [place, reading, level, data])
