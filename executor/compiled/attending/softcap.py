"""Scores kept within a soft cap (Gemma 2)."""

from __future__ import annotations

import math

import numpy as np

from executor.compiled.access import float_at, put_float
from executor.compiled.attending.queries import OCTAVES
from executor.compiled.kernel import jit


@jit
def cap(scores: int, count: int, softcap: np.float32) -> None:
    """Keep so many scores at an address within the cap, and make powers of two of them."""
    for i in range(count):
        capped = softcap * np.float32(math.tanh(float_at(scores, i) / softcap))
        put_float(scores, i, OCTAVES * capped)
