"""Our Philox is numpy's, for many keys at once."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from executor.draws import uniforms


def drawn_by_numpy(seed: int, choice: int, position: int) -> float:
    key = np.array([seed % 2**64, choice], dtype=np.uint64)
    counter = np.array([position, 0, 0, 0], dtype=np.uint64)
    return float(np.random.Generator(np.random.Philox(key=key, counter=counter)).random())


@given(
    st.lists(
        st.tuples(st.integers(-(2**63), 2**64 - 1), st.integers(0, 127), st.integers(0, 2**31 - 1)),
        min_size=1,
        max_size=20,
    )
)
def test_uniforms_are_numpys_bit_for_bit(keys: list[tuple[int, int, int]]) -> None:
    seeds, choices, positions = zip(*keys, strict=True)
    assert uniforms(seeds, choices, positions).tolist() == [drawn_by_numpy(*key) for key in keys]


def test_each_argument_matters() -> None:
    drawn = uniforms([1, 1, 2, 1, -1], [0, 0, 0, 1, 0], [0, 0, 0, 0, 0]).tolist()
    drawn += uniforms([1], [0], [1]).tolist()
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) == 5
