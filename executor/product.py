"""Products of few rows with a large fixed matrix, read from memory while it is computed with.

The matrix is kept in panels of columns [N / P, K, P], in the type it is stored in (`halves`). A
thread takes one panel at a time and multiplies all rows by it, as many at once as have their sums
in registers; meanwhile the panel that it will take next is fetched. So what a decode step must
read, all weights, is read beside the arithmetic and not before it (panels and register tiles are
those of GotoBLAS, Goto and van de Geijn 2008).
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from numba import carray
from torch import Tensor, nn

from executor.compiled import team
from executor.compiled.access import take_ticket
from executor.compiled.emit import vector_width
from executor.compiled.faults import expect, works
from executor.compiled.gate import gate
from executor.compiled.halves import STORED, STORED_BYTES
from executor.compiled.kernel import compiled, revision
from executor.compiled.matrix import MOST_ROWS, multiply
from executor.compiled.series import Call
from executor.memory import in_huge_pages

VECTORS = 2
"""Vector registers side by side: a panel has VECTORS * width columns."""

_CHUNK_NUMBERS = 150_000
"""Of the rows that are multiplied by all panels before the next ones: 600 KB, which stay in a
core's own cache."""


class _Arguments(ctypes.Structure):
    """Addresses of contiguous float32, and sizes in numbers."""

    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in (
            "left",  # [M, K]
            "panels",  # [N / P, K, P], of the stored type
            "start",  # [N]: what every row begins with
            "product",  # [M, N], or [M, N / 2]
            "rows",  # M
            "inner",  # K
            "columns",  # N
            "chunk",  # rows that all panels are for before the next ones
            "counter",  # int64, 0 at the beginning
        )
    )


class PackedWeight(ABC):
    """A weight [N, K] in a kernel's own order, to multiply rows of float32 by."""

    answers: int
    """N, or N / 2 of a gated one: numbers of a row's product."""

    inner: int
    """K."""

    calls: tuple[Call, ...]
    """Kernels that multiply what was prepared, one after the other."""

    @abstractmethod
    def prepare(self, left: int, product: int, rows: int) -> None:
        """What `calls` multiply next: addresses of contiguous [rows, K] and [rows, answers]."""

    def multiply(self, left: Tensor, product: Tensor | None = None) -> Tensor:
        """Rows of float32 [..., K] to [..., answers]; into `product`, if given, contiguous."""
        left = left.contiguous()
        if product is None:
            product = left.new_empty(*left.shape[:-1], self.answers)
        rows = left.numel() // self.inner
        if rows:
            self.prepare(left.data_ptr(), product.data_ptr(), rows)
            for call in self.calls:
                call.run()
        return product


class Panels(PackedWeight):
    """A weight [N, K] to multiply rows by: x [..., K] to x @ weight.T + bias [..., N], in float32.

    The weight stays in its type, float32, bfloat16 or float16; the answer is that of its float32
    copy, bit for bit. Of two weights, gates and ups [N / 2, K] with biases of them in turn
    (`interleaved`), the answer is silu(gate) * up [..., N / 2].
    """

    def __init__(self, *weights: Tensor, bias: Tensor | None = None, stays: bool = True) -> None:
        self.answers, self.inner = weights[0].shape
        columns = len(weights) * self.answers
        panels = _panels(weights, stays=stays)
        start = torch.zeros(columns) if bias is None else bias.float().contiguous()
        self._counter = ctypes.c_int64()
        self._kept = panels, start
        self._given = _Arguments(
            panels=panels.data_ptr(),
            start=start.data_ptr(),
            inner=self.inner,
            columns=columns,
            counter=ctypes.addressof(self._counter),
        )
        stored = STORED[weights[0].dtype]
        kernel = product_kernel(vector_width(), gated=len(weights) > 1, stored=stored)
        self.calls = (Call(kernel, ctypes.addressof(self._given)),)

    def prepare(self, left: int, product: int, rows: int) -> None:
        given = self._given
        given.left, given.product, given.rows = left, product, rows
        given.chunk = -(-rows // max(1, -(-rows * given.inner // _CHUNK_NUMBERS)))
        self._counter.value = 0


def _panels(weights: Sequence[Tensor], *, stays: bool) -> Tensor:
    """Of columns [N / P, K, P]: a vector of each weight [N, K] in turn, or two of the only one.

    A line of bfloat16 holds the columns of its two vectors in turn, so that a vector of 32 bits
    has both. Weights are laid down at once: a copy in between, of every layer, left the heap with
    holes that the next layer's did not fit, up to 170 MB of them.
    """
    width, inner = vector_width(), weights[0].shape[1]
    vectors = weights if len(weights) > 1 else weights[0].view(-1, VECTORS, width, inner).unbind(1)
    sources = [vector.reshape(-1, width, inner) for vector in vectors]
    shape = (len(sources[0]), inner, VECTORS * width)
    panels = in_huge_pages(shape, weights[0].dtype, stays=stays)
    in_turn = panels.dtype == torch.bfloat16
    places = panels.view(*shape[:2], *((width, VECTORS) if in_turn else (VECTORS, width)))
    for place, source in zip(places.unbind(3 if in_turn else 2), sources, strict=True):
        place.copy_(source.transpose(1, 2))
    return panels


def interleaved(gates: Tensor, ups: Tensor) -> Tensor:
    """Two of [N], a vector of each in turn: [2 N]."""
    width = vector_width()
    return torch.stack([gates.view(-1, width), ups.view(-1, width)], dim=1).flatten()


def fits(weight: Tensor) -> bool:
    """Whether the kernel is made for this weight on this machine."""
    whole = weight.shape[0] % (VECTORS * vector_width()) == 0
    if weight.dtype not in STORED or not whole or team.openmp() is None:
        return False
    kind = str(weight.dtype).removeprefix("torch.")
    return works(f"product of {kind} weights", "torch's products", lambda: _check(weight.dtype))


def _check(stored: torch.dtype) -> None:
    """Raises if the kernels answer otherwise than torch."""
    generator = torch.Generator().manual_seed(0)
    columns, inner, rows = 2 * VECTORS * vector_width(), 37, MOST_ROWS[vector_width()] + 1
    left = torch.randn(rows, inner, generator=generator)
    gates, ups = torch.randn(2, columns, inner, generator=generator).to(stored)
    bias = torch.randn(columns, generator=generator)
    linear = nn.functional.linear
    expect(Panels(gates, bias=bias).multiply(left), linear(left, gates.float(), bias))
    gated = nn.functional.silu(linear(left, gates.float())) * linear(left, ups.float())
    expect(Panels(gates, ups).multiply(left), gated)


@cache
def product_kernel(width: int, *, gated: bool, stored: int) -> int:
    """The address of the kernel void(_Arguments*); call it on any threads."""
    code, most, side_by_side = revision(), MOST_ROWS[width], VECTORS
    size, line_bytes = side_by_side * width, STORED_BYTES[stored] * side_by_side * width

    def kernel(pointer):  # type: ignore[no-untyped-def]
        a = carray(pointer, 1)[0]
        panels, panel_bytes = a.columns // size, a.inner * line_bytes
        total = panels * ((a.rows + a.chunk - 1) // a.chunk)
        pairs = np.empty((most, size), dtype=np.float32)
        ticket = take_ticket(a.counter)
        while code >= 0 and ticket < total:
            following = take_ticket(a.counter)
            panel, first = ticket % panels, ticket // panels * a.chunk
            count = min(a.chunk, a.rows - first)
            blocks = (count + most - 1) // most
            right = a.panels + panel * panel_bytes
            ahead = a.panels + following % panels * panel_bytes if following < total else right
            step = (line_bytes + blocks - 1) // blocks
            for block in range(blocks):
                start = count * block // blocks
                rows = count * (block + 1) // blocks - start
                row = first + start
                target, target_row = a.product + 4 * (row * a.columns + panel * size), a.columns
                if gated:
                    target, target_row = pairs.ctypes.data, size
                multiply(
                    a.left + 4 * row * a.inner, a.inner, 1, right, size, a.inner,
                    a.start + 4 * panel * size, 0, target, target_row,
                    ahead + block * a.inner * step, step, rows, most, side_by_side, width, stored,
                )  # fmt: skip
                if gated:
                    for r in range(rows):
                        place = (row + r) * (a.columns // 2) + panel * width
                        gate(target + 4 * r * size, a.product + 4 * place, width)
            ticket = following

    return compiled(kernel, _Arguments)
