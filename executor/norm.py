"""Root mean square normalization in one pass over a row, where torch takes seven."""

from __future__ import annotations

import ctypes
from functools import cache

import torch
from numba import carray
from torch import Tensor, nn

from executor.compiled.access import take_ticket
from executor.compiled.faults import expect, works
from executor.compiled.kernel import compiled, revision
from executor.compiled.rows import add, normalize
from executor.compiled.series import Call

_AT_ONCE = 8
"""Rows that a thread takes at a time."""


class _Arguments(ctypes.Structure):
    _fields_ = (
        ("rows", ctypes.c_int64),  # [M, N] at, contiguous
        ("added", ctypes.c_int64),  # [M, N] at: what is added to them first; 0: nothing
        ("weight", ctypes.c_int64),  # [N] at
        ("normal", ctypes.c_int64),  # [M, N] at
        ("count", ctypes.c_int64),  # M
        ("size", ctypes.c_int64),  # N
        ("counter", ctypes.c_int64),  # int64, 0 at the beginning
        ("epsilon", ctypes.c_float),
    )


class FusedRmsNorm(nn.Module):
    """x [..., N] to x / sqrt(mean(x ** 2) + epsilon) * weight, in float32."""

    def __init__(self, weight: Tensor, epsilon: float) -> None:
        super().__init__()
        self.weight = weight.detach().clone().contiguous()
        self.epsilon = epsilon
        self._counter = ctypes.c_int64()
        self._given = _Arguments(
            weight=self.weight.data_ptr(),
            size=len(weight),
            counter=ctypes.addressof(self._counter),
            epsilon=epsilon,
        )
        self.call = Call(_kernel(), ctypes.addressof(self._given))

    def forward(self, rows: Tensor) -> Tensor:
        rows = rows.contiguous()
        normal = torch.empty_like(rows)
        self.prepare(rows.data_ptr(), normal.data_ptr(), rows.numel() // self._given.size)
        self.call.run()
        return normal

    def prepare(self, rows: int, normal: int, count: int, added: int = 0) -> None:
        """What `call` normalizes next: addresses of contiguous [count, N]. `added` is added to
        `rows` in their place first, if it is not 0."""
        given = self._given
        given.rows, given.added, given.normal, given.count = rows, added, normal, count
        self._counter.value = 0


def can_normalize() -> bool:
    """Whether `FusedRmsNorm` works here."""
    return works("RMS normalization", "the model's own modules", _check)


def _check() -> None:
    """Raises if the kernel answers otherwise than torch."""
    generator = torch.Generator().manual_seed(0)
    rows, added = torch.randn(2, _AT_ONCE + 1, 37, generator=generator)
    weight = torch.randn(37, generator=generator)
    summed, normal = rows.clone(), torch.empty_like(rows)
    norm = FusedRmsNorm(weight, 1e-5)
    norm.prepare(summed.data_ptr(), normal.data_ptr(), len(rows), added.data_ptr())
    norm.call.run()
    expect(summed, rows + added)
    expect(normal, nn.functional.rms_norm(rows + added, [37], weight, 1e-5))


@cache
def _kernel() -> int:
    code = revision()

    def kernel(pointer):  # type: ignore[no-untyped-def]
        a = carray(pointer, 1)[0]
        first = take_ticket(a.counter) * _AT_ONCE
        while code >= 0 and first < a.count:
            for row in range(first, min(first + _AT_ONCE, a.count)):
                start = 4 * row * a.size
                if a.added != 0:
                    add(a.rows + start, a.added + start, a.rows + start, a.size)
                normalize(a.rows + start, a.weight, a.normal + start, a.size, a.epsilon)
            first = take_ticket(a.counter) * _AT_ONCE

    return compiled(kernel, _Arguments)
