"""The softmax of attention, kept up as tiles of keys come (Milakov and Gimelshein 2018)."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

TILE = 64
"""Keys scored before the softmax is brought up to date."""


def jit(function: Any) -> Any:
    return numba.njit(fastmath=True, nogil=True, error_model="numpy", cache=True)(function)


@jit
def cap(scores: Floats, first: int, last: int, softcap: np.float32, q: int) -> None:
    """Keep query q's scores [first, last) within the soft cap."""
    for t in range(first, last):
        scores[q, t] = softcap * np.float32(math.tanh(scores[q, t] / softcap))
