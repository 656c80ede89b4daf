"""Root mean square normalization in one pass over a row, where torch takes seven."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import numba
import numpy as np
import torch
from numba import carray, types
from torch import Tensor, nn

from executor import team, vectors
from executor.vectors import float_at, put_float, take_ticket

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
    kernel = _make()
    _kernels.append(kernel)
    return int(kernel.address)


_kernels: list[Any] = []
"""Keeps the code of every address given out."""


def _make() -> Any:
    revision = crc32(Path(vectors.__file__).read_bytes())  # see `attention.kernel._make`

    def kernel(pointer):  # type: ignore[no-untyped-def]
        a = carray(pointer, 1)[0]
        first = take_ticket(a.counter) * _AT_ONCE
        while revision >= 0 and first < a.count:
            for row in range(first, min(first + _AT_ONCE, a.count)):
                start = 4 * row * a.size
                _normalize(a.rows + start, a.weight, a.normal + start, a.size, a.epsilon)
            first = take_ticket(a.counter) * _AT_ONCE

    signature = types.void(types.CPointer(numba.from_dtype(np.dtype(_Arguments))))
    return numba.cfunc(signature, cache=True, error_model="numpy")(kernel)


@numba.njit(fastmath=True, error_model="numpy", cache=True)  # type: ignore[untyped-decorator]
def _normalize(row: int, weight: int, normal: int, size: int, epsilon: np.float32) -> None:
    squares = np.float32(0)
    for d in range(size):
        squares += float_at(row, d) * float_at(row, d)
    factor = np.float32(1) / np.sqrt(squares / np.float32(size) + epsilon)
    for d in range(size):
        put_float(normal, d, factor * float_at(row, d) * float_at(weight, d))
