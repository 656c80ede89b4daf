"""Exponentials of numbers that are at most 0."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from executor.compiled.emit import constant, emitter, fma, higher

LOG2_E = 1.4426950408889634
"""Octaves in a power of e: e ** x = 2 ** (LOG2_E * x)."""

_LOG2_E, _LOG2_E_REST = 1.44269502162933349609375, 1.92596299112661746887e-8
"""The float32 nearest to it, and what that leaves out."""


@emitter
def exponential(typing: Any, x: Any) -> Any:
    """e ** x as float32 for x <= 0, within 3 units in the last place; 0 from -87 on."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return emit_exponential(builder, arguments[0])

    return types.float32(types.float32), generate


@emitter
def power_of_two(typing: Any, x: Any) -> Any:
    """2 ** x as float32 for x <= 0, within 2 units in the last place; next to 0 from -126 on."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return emit_power_of_two(builder, arguments[0])

    return types.float32(types.float32), generate


def emit_exponential(builder: Any, x: Any) -> Any:
    """`exponential` of a number or a vector of them."""
    lowest = constant(x.type, -87.0)
    bounded = higher(builder, x, lowest)
    octaves = builder.fmul(bounded, constant(x.type, _LOG2_E))
    lost = fma(builder, bounded, constant(x.type, _LOG2_E), builder.fneg(octaves))
    lost = fma(builder, bounded, constant(x.type, _LOG2_E_REST), lost)
    whole = _nearest(builder, octaves)
    part = builder.fadd(builder.fsub(octaves, whole), lost)
    inside = builder.fcmp_ordered(">", x, lowest)
    return builder.select(inside, _power(builder, whole, part), constant(x.type, 0.0))


def emit_power_of_two(builder: Any, x: Any) -> Any:
    """`power_of_two` of a number or a vector of them: half the work of an exponential."""
    bounded = higher(builder, x, constant(x.type, -126.0))
    whole = _nearest(builder, bounded)
    return _power(builder, whole, builder.fsub(bounded, whole))


def _nearest(builder: Any, x: Any) -> Any:
    name = f"v{x.type.count}f32" if isinstance(x.type, ir.VectorType) else "f32"
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(x.type, [x.type]), f"llvm.rint.{name}"
    )
    return builder.call(function, [x])


_POWER = (
    1.535336188319500e-4, 1.339887440266574e-3, 9.618437357674640e-3, 5.550332471162809e-2,
    2.402264791363012e-1, 6.931472028550421e-1, 1.0,
)  # fmt: skip
"""2 ** x on half an octave either side, by Cephes' coefficients, the highest first."""


def _power(builder: Any, whole: Any, part: Any) -> Any:
    """2 ** (whole + part), the second at most a half: the power of the whole is added to the
    exponent in the other's bits."""
    value = constant(part.type, _POWER[0])
    for coefficient in _POWER[1:]:
        value = fma(builder, value, part, constant(part.type, coefficient))
    bits = _of(whole.type, ir.IntType(32))
    octaves = builder.shl(builder.fptosi(whole, bits), constant(bits, 23))
    return builder.bitcast(builder.add(builder.bitcast(value, bits), octaves), part.type)


def _of(kind: Any, element: Any) -> Any:
    return ir.VectorType(element, kind.count) if isinstance(kind, ir.VectorType) else element
