"""The softmax of attention, kept up as tiles of keys come (Milakov and Gimelshein 2018)."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from executor.vectors import power_of_two

Floats = NDArray[np.float32]

TILE = 64
"""Keys scored before the softmax is brought up to date."""


def jit(function: Any) -> Any:
    return numba.njit(fastmath=True, nogil=True, error_model="numpy", cache=True)(function)


@numba.njit(fastmath={"contract", "nsz"}, inline="always")  # type: ignore[untyped-decorator]
def exponential(x: np.float32) -> np.float32:
    """e ** x for x <= 0 within 3 units in the last place; 0 from where it would be denormal.

    2 ** n times a polynomial on half an octave either side (Cephes' coefficients), which
    becomes vector code where a call into the C library would not.
    """
    bounded = max(x, np.float32(-87.0))
    n = np.int32(bounded * np.float32(1.44269504) - np.float32(0.5))
    f = np.float32(n)
    r = (bounded - f * np.float32(0.693359375)) - f * np.float32(-2.12194440e-4)
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    result = (p * r * r + r + np.float32(1)) * power_of_two(n)
    return result if x > np.float32(-87.0) else np.float32(0)


@jit
def weigh(
    scores: Floats, first: int, last: int, softcap: np.float32, q: int,
    highest: Floats, total: Floats, mixed: Floats,
) -> None:  # fmt: skip
    """Turn query q's scores [first, last) into weights, and its state to the new maximum."""
    row = scores[q]
    if softcap > 0:
        for t in range(first, last):
            row[t] = softcap * np.float32(math.tanh(row[t] / softcap))
    top, added = highest[q], np.float32(0)
    if first == 0 and last == TILE:  # sizes that are known make straight vector code
        for t in range(TILE):
            top = max(top, row[t])
        for t in range(TILE):
            row[t] = exponential(row[t] - top)
            added += row[t]
    else:
        for t in range(first, last):
            top = max(top, row[t])
        for t in range(first, last):
            row[t] = exponential(row[t] - top)
            added += row[t]
    if top > highest[q]:
        shrink = exponential(highest[q] - top)
        highest[q] = top
        total[q] *= shrink
        for d in range(mixed.shape[1]):
            mixed[q, d] *= shrink
    total[q] += added
