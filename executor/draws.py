"""Random numbers that depend on nothing but the request they are for.

Philox4x64-10 (Salmon et al., SC'11), many keys and counters at once; bit for bit what numpy's
`Generator(Philox(key, counter)).random()` gives.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_Words = NDArray[np.uint64]

_MULTIPLIERS = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_WEYL = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
_ROUNDS = 10
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


def uniforms(
    seeds: Sequence[int], choices: Sequence[int], positions: Sequence[int]
) -> NDArray[np.float64]:
    """Numbers in [0, 1): one for each key (seed, choice) at counter `position`."""
    first_key, second_key = _words(seeds), _words(choices)
    # numpy counts up before it draws.
    counter = [_words(positions) + np.uint64(1)] + [np.zeros_like(first_key)] * 3
    for _ in range(_ROUNDS):
        high_a, low_a = _product(_MULTIPLIERS[0], counter[0])
        high_b, low_b = _product(_MULTIPLIERS[1], counter[2])
        counter = [high_b ^ counter[1] ^ first_key, low_b, high_a ^ counter[3] ^ second_key, low_a]
        first_key, second_key = first_key + _WEYL[0], second_key + _WEYL[1]
    mantissas: NDArray[np.float64] = (counter[0] >> np.uint64(11)).astype(np.float64)
    return mantissas * 2.0**-53


def _words(values: Sequence[int]) -> _Words:
    return np.array([value % 2**64 for value in values], dtype=np.uint64)


def _product(constant: np.uint64, words: _Words) -> tuple[_Words, _Words]:
    """High and low 64 bits of the 128-bit products."""
    constant_high, constant_low = constant >> _HALF, constant & _LOW
    high, low = words >> _HALF, words & _LOW
    middle = constant_high * low + (constant_low * low >> _HALF)
    other = constant_low * high + (middle & _LOW)
    return constant_high * high + (middle >> _HALF) + (other >> _HALF), constant * words
