"""Products of bfloat16 matrices on AMX tiles, with float32 sums.

Tile registers hold 16 rows of 64 bytes. A product of 32 rows takes two tiles of the left matrix
and two of the right one at a time, and adds to four tiles of sums: four products for four loads.
"""

from __future__ import annotations

import ctypes
import struct
from functools import cache
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from executor.compiled.emit import (
    CACHE_LINE,
    FLOAT,
    SECOND,
    emitter,
    fetch,
    integer,
    nothing,
    signature,
)
from executor.compiled.processor import has_feature

TILE_ROWS = 16
"""Rows of a tile: of the left matrix, or pairs of numbers of the right one's columns."""

BLOCK_ROWS, BLOCK_COLUMNS = 2 * TILE_ROWS, 2 * TILE_ROWS
"""Of one product: what `multiply_tiles` computes."""

STEP = 32
"""Of the inner dimension, that one pair of tiles covers."""

STEP_BYTES = 2 * STEP * BLOCK_COLUMNS
"""Of the right matrix, that one step reads."""

_PALETTE = 1
_TILES = 8
_SUMS, _LEFTS, _RIGHTS = (0, 1, 2, 3), (4, 5), (6, 7)
_BYTE = ir.IntType(8)

_ARCH_PRCTL = 158
_REQUEST_PERMISSION, _TILE_DATA = 0x1023, 18


@cache
def can_use_tiles() -> bool:
    """Whether this CPU has AMX with bfloat16 and the system lets this process use it.

    Linux saves tile registers only for processes that ask for it (arch_prctl(2)).
    """
    if not (has_feature("amx-tile") and has_feature("amx-bf16")):
        return False
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "syscall"):
        return False
    return bool(library.syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0)


def tile_configuration() -> bytes:
    """What `configure_tiles` loads: eight tiles of 16 rows of 64 bytes."""
    columns = struct.pack("<16H", *[CACHE_LINE] * _TILES, *[0] * 8)
    rows = struct.pack("<16B", *[TILE_ROWS] * _TILES, *[0] * 8)
    return struct.pack("<BB14x", _PALETTE, 0) + columns + rows


@emitter
def configure_tiles(typing: Any, configuration: Any) -> Any:
    """Take the tiles of this thread into use; the 64 bytes at an address say their sizes."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], _BYTE.as_pointer())
        _call(builder, "llvm.x86.ldtilecfg", place)
        return nothing()

    return types.boolean(types.int64), generate


@emitter
def release_tiles(typing: Any) -> Any:
    """Leave the tiles of this thread as they were before, unused."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        _call(builder, "llvm.x86.tilerelease")
        return nothing()

    return types.boolean(), generate


@emitter
def multiply_tiles(
    typing: Any, left: Any, left_row: Any, right: Any, steps: Any, product: Any, product_row: Any,
    ahead: Any, ahead_step: Any, halves: Any,
) -> Any:  # fmt: skip
    """product = left @ right, for `halves` * 16 rows and 32 columns.

    Addresses of bfloat16 left [rows, 32 steps] and right [steps, 2, 16, 16, 2], which holds for
    each step and 16 columns the pairs of numbers of each column side by side, and of float32
    product [rows, 32]; `left_row` and `product_row` are strides in bytes. Meanwhile `ahead_step`
    bytes from `ahead` on are fetched for each step. `halves` is a literal, 1 or 2.
    """
    count = halves.literal_value

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        _emit_product(builder, arguments[:8], count)
        return nothing()

    return signature(8, halves), generate


def _emit_product(builder: Any, given: Any, halves: int) -> None:
    left, left_row, right, steps, product, product_row, ahead, ahead_step = given
    sums = _SUMS[: 2 * halves]
    for tile in sums:
        _call(builder, "llvm.x86.tilezero", _tile(tile))
    with cgutils.for_range_slice(builder, integer(0), steps, integer(1)) as (step, _):
        line = builder.add(right, builder.mul(step, integer(STEP_BYTES)))
        for side, tile in enumerate(_RIGHTS):
            _load(builder, tile, builder.add(line, integer(side * STEP_BYTES // 2)), integer(64))
        column = builder.add(left, builder.mul(step, integer(2 * STEP)))
        _fetch_lines(builder, builder.add(ahead, builder.mul(step, ahead_step)), ahead_step)
        for half in range(halves):
            rows = builder.mul(left_row, integer(half * TILE_ROWS))
            _load(builder, _LEFTS[half], builder.add(column, rows), left_row)
            for side in range(2):
                tiles = sums[2 * half + side], _LEFTS[half], _RIGHTS[side]
                _call(builder, "llvm.x86.tdpbf16ps", *map(_tile, tiles))
    for place, tile in enumerate(sums):
        half, side = divmod(place, 2)
        start = builder.add(product, builder.mul(product_row, integer(half * TILE_ROWS)))
        _store(builder, tile, builder.add(start, integer(side * CACHE_LINE)), product_row)


def _fetch_lines(builder: Any, address: Any, size: Any) -> None:
    """Ask for so many bytes from an address on, a multiple of cache lines."""
    with cgutils.for_range_slice(builder, integer(0), size, integer(CACHE_LINE)) as (line, _):
        place = builder.inttoptr(builder.add(address, line), FLOAT.as_pointer())
        fetch(builder, place, 0, CACHE_LINE, SECOND)


def _tile(number: int) -> Any:
    return ir.Constant(_BYTE, number)


def _load(builder: Any, tile: int, address: Any, stride: Any) -> None:
    place = builder.inttoptr(address, _BYTE.as_pointer())
    _call(builder, "llvm.x86.tileloadd64", _tile(tile), place, stride)


def _store(builder: Any, tile: int, address: Any, stride: Any) -> None:
    place = builder.inttoptr(address, _BYTE.as_pointer())
    _call(builder, "llvm.x86.tilestored64", _tile(tile), place, stride)


def _call(builder: Any, name: str, *given: Any) -> None:
    kind = ir.FunctionType(ir.VoidType(), [value.type for value in given])
    builder.call(cgutils.get_or_insert_function(builder.module, kind, name), given)
