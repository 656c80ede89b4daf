"""What is done to one row of float32 at an address."""

from __future__ import annotations

import numpy as np

from executor.compiled.access import float_at, put_float
from executor.compiled.kernel import jit


@jit
def normalize(row: int, weight: int, normal: int, size: int, epsilon: np.float32) -> None:
    """The row over the root of its mean square, times `weight`, to `normal`, which may be it."""
    squares = np.float32(0)
    for d in range(size):
        squares += float_at(row, d) * float_at(row, d)
    factor = np.float32(1) / np.sqrt(squares / np.float32(size) + epsilon)
    for d in range(size):
        put_float(normal, d, factor * float_at(row, d) * float_at(weight, d))


@jit
def add(one: int, other: int, total: int, size: int) -> None:
    """The sum of two rows to `total`, which may be one of them."""
    for d in range(size):
        put_float(total, d, float_at(one, d) + float_at(other, d))
