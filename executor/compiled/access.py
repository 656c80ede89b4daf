"""Single numbers at addresses, for Numba kernels."""

from __future__ import annotations

from typing import Any

from numba.core import cgutils, types

from executor.compiled.emit import (
    FLOAT,
    INT,
    emitter,
    integer,
    nothing,
)


@emitter
def take_ticket(typing: Any, counter: Any) -> Any:
    """The int64 at this address, which becomes one more: each thread gets another number."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        address = builder.inttoptr(arguments[0], INT.as_pointer())
        return builder.atomic_rmw("add", address, integer(1), "monotonic")

    return types.int64(types.int64), generate


@emitter
def copy_bytes(typing: Any, target: Any, source: Any, count: Any) -> Any:
    """Copy `count` bytes from one address to another."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        to, of = (builder.inttoptr(a, FLOAT.as_pointer()) for a in arguments[:2])
        cgutils.raw_memcpy(builder, to, of, arguments[2], integer(1))
        return nothing()

    return types.boolean(types.int64, types.int64, types.int64), generate


@emitter
def float_at(typing: Any, address: Any, index: Any) -> Any:
    """The float32 that many places behind an address."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.load(builder.gep(*_place(builder, arguments, FLOAT)))

    return types.float32(types.int64, types.int64), generate


@emitter
def put_float(typing: Any, address: Any, index: Any, value: Any) -> Any:
    """Store a float32 that many places behind an address."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        builder.store(arguments[2], builder.gep(*_place(builder, arguments[:2], FLOAT)))
        return nothing()

    return types.boolean(types.int64, types.int64, types.float32), generate


@emitter
def int_at(typing: Any, address: Any, index: Any) -> Any:
    """The int64 that many places behind an address."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.load(builder.gep(*_place(builder, arguments, INT)))

    return types.int64(types.int64, types.int64), generate


def _place(builder: Any, arguments: Any, kind: Any) -> tuple[Any, list[Any]]:
    return builder.inttoptr(arguments[0], kind.as_pointer()), [arguments[1]]
