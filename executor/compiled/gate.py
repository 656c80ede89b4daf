"""The gate of a gated MLP."""

from __future__ import annotations

from typing import Any

from executor.compiled.emit import (
    constant,
    emitter,
    higher,
    load,
    nothing,
    pointers,
    signature,
    store,
)
from executor.compiled.exponential import emit_exponential


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
