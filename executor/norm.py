"""Root mean square normalization in one pass over a row, where torch takes seven."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
import torch
from numba import carray
from torch import Tensor, nn

from executor.compiled import team
from executor.compiled.access import float_at, put_float, take_ticket
from executor.compiled.kernel import compiled, jit, revision

_AT_ONCE = 8
"""Rows that a thread takes at a time."""


class _Arguments(ctypes.Structure):
    _fields_ = (
        ("rows", ctypes.c_int64),  # [M, N] at, contiguous
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
        self._weight = weight.detach().contiguous()
        self._counter = ctypes.c_int64()
        self._given = _Arguments(
            weight=self._weight.data_ptr(),
            size=len(weight),
            counter=ctypes.addressof(self._counter),
            epsilon=epsilon,
        )

    def forward(self, rows: Tensor) -> Tensor:
        rows = rows.contiguous()
        normal, given = torch.empty_like(rows), self._given
        given.rows, given.normal = rows.data_ptr(), normal.data_ptr()
        given.count = rows.numel() // given.size
        self._counter.value = 0
        team.run_together(_kernel(), ctypes.addressof(given))
        return normal


@cache
def _kernel() -> int:
    code = revision()

    def kernel(pointer):  # type: ignore[no-untyped-def]
        a = carray(pointer, 1)[0]
        first = take_ticket(a.counter) * _AT_ONCE
        while code >= 0 and first < a.count:
            for row in range(first, min(first + _AT_ONCE, a.count)):
                start = 4 * row * a.size
                _normalize(a.rows + start, a.weight, a.normal + start, a.size, a.epsilon)
            first = take_ticket(a.counter) * _AT_ONCE

    return compiled(kernel, _Arguments)


@jit
def _normalize(row: int, weight: int, normal: int, size: int, epsilon: np.float32) -> None:
    squares = np.float32(0)
    for d in range(size):
        squares += float_at(row, d) * float_at(row, d)
    factor = np.float32(1) / np.sqrt(squares / np.float32(size) + epsilon)
    for d in range(size):
        put_float(normal, d, factor * float_at(row, d) * float_at(weight, d))
