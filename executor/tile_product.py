"""Products of rows with a fixed bfloat16 matrix on AMX tiles (`tiles`).

Rows of float32 are rounded to bfloat16 before they are multiplied, and sums are float32: what a
16-bit model loses at every other operation is kept. As in `product`, a thread takes one panel of
columns at a time, and the panel that it takes next is fetched meanwhile.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from numba import carray
from torch import Tensor, nn

from executor.compiled import team
from executor.compiled.access import copy_bytes, take_ticket
from executor.compiled.dots import add_line
from executor.compiled.faults import expect, works
from executor.compiled.gate import gate
from executor.compiled.halves import narrow
from executor.compiled.kernel import compiled, revision
from executor.compiled.series import Call
from executor.compiled.tiles import (
    BLOCK_COLUMNS,
    BLOCK_ROWS,
    STEP,
    STEP_BYTES,
    TILE_ROWS,
    can_use_tiles,
    configure_tiles,
    multiply_tiles,
    release_tiles,
    tile_configuration,
)
from executor.memory import in_huge_pages
from executor.product import PackedWeight

_CHUNK_BYTES = 1 << 20
"""Of rounded rows that are multiplied by all panels before the next ones: they stay in a core's
own cache."""

_ROUNDED_AT_ONCE = 8
"""Rows that a thread rounds at a time."""


class _Arguments(ctypes.Structure):
    """Addresses of contiguous numbers, float32 where nothing else is said, and sizes in numbers."""

    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in (
            "left",  # [M, K]
            "rounded",  # [M or more, K] bfloat16: room for a whole block of rows behind the last
            "panels",  # [N / 32, K / 32, 2, 16, 16, 2] bfloat16
            "start",  # [N]: what is added to every row; 0: nothing
            "product",  # [M, N], or [M, N / 2]
            "rows",  # M
            "inner",  # K
            "columns",  # N
            "chunk",  # rows that all panels are for before the next ones
            "configuration",  # of the tiles
            "rounding",  # int64, 0 at the beginning
            "counter",  # int64, 0 at the beginning
        )
    )


class _Rounded:
    """Room for the rows at work, rounded: one for every K, as products follow one another."""

    def __init__(self) -> None:
        self._room: dict[int, Tensor] = {}

    def address(self, rows: int, inner: int) -> int:
        needed = -(-rows // BLOCK_ROWS) * BLOCK_ROWS
        room = self._room.get(inner)
        if room is None or len(room) < needed:
            room = self._room[inner] = torch.empty(needed, inner, dtype=torch.bfloat16)
        return room.data_ptr()


_rounded = _Rounded()
_configuration = ctypes.create_string_buffer(tile_configuration(), len(tile_configuration()))


class TilePanels(PackedWeight):
    """A weight [N, K] of bfloat16 to multiply rows by: x [..., K] to x @ weight.T + bias [..., N].

    Of two weights, gates and ups [N / 2, K] with biases of them in turn, a vector each
    (`product.interleaved`), the answer is silu(gate) * up [..., N / 2].
    """

    def __init__(self, *weights: Tensor, bias: Tensor | None = None, stays: bool = True) -> None:
        self.answers, self.inner = weights[0].shape
        columns = len(weights) * self.answers
        panels = _panels(weights, stays=stays)
        start = None if bias is None else bias.float().contiguous()
        self._counters = (ctypes.c_int64 * 2)()
        self._kept = panels, start
        first = ctypes.addressof(self._counters)
        self._given = _Arguments(
            panels=panels.data_ptr(),
            start=0 if start is None else start.data_ptr(),
            inner=self.inner,
            columns=columns,
            configuration=ctypes.addressof(_configuration),
            rounding=first,
            counter=first + ctypes.sizeof(ctypes.c_int64),
        )
        given = ctypes.addressof(self._given)
        kernel = _product_kernel(gated=len(weights) > 1)
        self.calls = Call(_rounding_kernel(), given), Call(kernel, given)

    def prepare(self, left: int, product: int, rows: int) -> None:
        given = self._given
        given.left, given.product, given.rows = left, product, rows
        given.rounded = _rounded.address(rows, given.inner)
        most = max(1, _CHUNK_BYTES // (2 * given.inner * BLOCK_ROWS))
        blocks = -(-rows // BLOCK_ROWS)
        given.chunk = -(-blocks // -(-blocks // most)) * BLOCK_ROWS
        self._counters[0] = self._counters[1] = 0


def _panels(weights: Sequence[Tensor], *, stays: bool) -> Tensor:
    """Tiles of [N / 32, K / 32, 2, 16, 16, 2]: of each 32 columns and 32 numbers of theirs a tile
    of 16 columns of each weight, or two of the only one, with the numbers in pairs."""
    inner, side = weights[0].shape[1], TILE_ROWS
    tiles = weights if len(weights) > 1 else weights[0].view(-1, 2, side, inner).unbind(1)
    shape = (sum(len(w) for w in weights) // BLOCK_COLUMNS, inner // STEP, 2, side, side, 2)
    panels = in_huge_pages(shape, torch.bfloat16, stays=stays)
    for place, tile in zip(panels.unbind(2), tiles, strict=True):
        place.copy_(tile.reshape(-1, side, inner // STEP, side, 2).permute(0, 2, 3, 1, 4))
    return panels


def fits_tiles(weight: Tensor) -> bool:
    """Whether the kernel is made for this weight on this machine."""
    rows, inner = weight.shape
    whole = rows % BLOCK_COLUMNS == 0 and inner % STEP == 0
    return weight.dtype == torch.bfloat16 and whole and multiplies_on_tiles()


def multiplies_on_tiles() -> bool:
    """Whether this machine multiplies bfloat16 on AMX tiles."""
    if team.openmp() is None or not can_use_tiles():
        return False
    return works("product on AMX tiles", "products of widened weights", _check)


def _check() -> None:
    """Raises if the kernels answer otherwise than torch."""
    generator = torch.Generator().manual_seed(0)
    left = torch.randn(BLOCK_ROWS + 1, 2 * STEP, generator=generator).bfloat16().float()
    gates, ups = torch.randn(2, BLOCK_COLUMNS, 2 * STEP, generator=generator).bfloat16()
    bias = torch.randn(BLOCK_COLUMNS, generator=generator)
    linear = nn.functional.linear
    expect(TilePanels(gates, bias=bias).multiply(left), linear(left, gates.float(), bias))
    gated = nn.functional.silu(linear(left, gates.float())) * linear(left, ups.float())
    expect(TilePanels(gates, ups).multiply(left), gated)


@cache
def _rounding_kernel() -> int:
    code = revision()

    def kernel(pointer):  # type: ignore[no-untyped-def]
        a = carray(pointer, 1)[0]
        first = take_ticket(a.rounding) * _ROUNDED_AT_ONCE
        while code >= 0 and first < a.rows:
            count = min(_ROUNDED_AT_ONCE, a.rows - first)
            start = first * a.inner
            narrow(a.left + 4 * start, a.rounded + 2 * start, count * a.inner)
            first = take_ticket(a.rounding) * _ROUNDED_AT_ONCE

    return compiled(kernel, _Arguments)


@cache
def _product_kernel(*, gated: bool) -> int:
    """The address of the kernel void(_Arguments*); call it on any threads.

    Raises:
        RuntimeError: this process may not use tiles, and would be ended for trying.
    """
    if not can_use_tiles():
        raise RuntimeError("this process cannot use AMX tiles")
    code = revision()

    def kernel(pointer):  # type: ignore[no-untyped-def]
        a = carray(pointer, 1)[0]
        panels, steps, row_bytes = a.columns // BLOCK_COLUMNS, a.inner // STEP, 2 * a.inner
        total = panels * ((a.rows + a.chunk - 1) // a.chunk)
        sums = np.empty((BLOCK_ROWS, BLOCK_COLUMNS), dtype=np.float32)
        line = 4 * BLOCK_COLUMNS
        configure_tiles(a.configuration)
        ticket = take_ticket(a.counter)
        while code >= 0 and ticket < total:
            following = take_ticket(a.counter)
            panel, first = ticket % panels, ticket // panels * a.chunk
            count = min(a.chunk, a.rows - first)
            blocks = (count + BLOCK_ROWS - 1) // BLOCK_ROWS
            right = a.panels + panel * steps * STEP_BYTES
            ahead = right
            if following < total:
                ahead = a.panels + following % panels * steps * STEP_BYTES
            share = (STEP_BYTES // 64 + blocks - 1) // blocks * 64
            for block in range(blocks):
                row = first + block * BLOCK_ROWS
                rows = min(BLOCK_ROWS, a.rows - row)
                left, next_one = a.rounded + row * row_bytes, ahead + block * share * steps
                product = a.product + 4 * (row * a.columns + panel * BLOCK_COLUMNS)
                target, target_row = sums.ctypes.data, line
                direct = not gated and a.start == 0 and rows % TILE_ROWS == 0
                if direct:
                    target, target_row = product, 4 * a.columns
                if rows > TILE_ROWS:
                    multiply_tiles(
                        left, row_bytes, right, steps, target, target_row, next_one, share, 2
                    )
                else:
                    multiply_tiles(
                        left, row_bytes, right, steps, target, target_row, next_one, share, 1
                    )
                if direct:
                    continue
                start = a.start + 4 * panel * BLOCK_COLUMNS
                for r in range(rows):
                    at = target + r * line
                    if a.start != 0:
                        add_line(at, start, at, BLOCK_COLUMNS, TILE_ROWS)
                    if gated:
                        place = (row + r) * (a.columns // 2) + panel * TILE_ROWS
                        gate(at, a.product + 4 * place, TILE_ROWS)
                    else:
                        copy_bytes(product + 4 * r * a.columns, at, line)
            ticket = following
        release_tiles()

    return compiled(kernel, _Arguments)
