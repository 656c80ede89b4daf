"""Calls of C functions at addresses, for Numba kernels."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

from executor.compiled.emit import INT, emitter, nothing, signature

_THREAD = ir.IntType(32)


@emitter
def call(typing: Any, function: Any, given: Any) -> Any:
    """Call the void(void*) at an address with an address."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [INT])
        builder.call(_function(builder, arguments[0], kind), [arguments[1]])
        return nothing()

    return signature(2), generate


@emitter
def thread_number(typing: Any, function: Any, location: Any) -> Any:
    """The int32 that the int32(void*) at an address returns for an address."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_THREAD, [INT])
        return builder.call(_function(builder, arguments[0], kind), [arguments[1]])

    return types.int32(types.int64, types.int64), generate


@emitter
def wait_as(typing: Any, function: Any, location: Any, number: Any) -> Any:
    """Call the void(void*, int32) at an address with an address and a thread's number."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [INT, _THREAD])
        builder.call(_function(builder, arguments[0], kind), list(arguments[1:]))
        return nothing()

    return types.boolean(types.int64, types.int64, types.int32), generate


def _function(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, kind.as_pointer())
