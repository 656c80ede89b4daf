from __future__ import annotations

import numpy as np
import pytest

from batchjobs.evals.statistics.multiplicity import holm, holm_rows

P = [0.001, 0.008, 0.039, 0.041, 0.042, 0.06, 0.074, 0.205, 0.212, 0.216, 0.222, 0.251]


def test_holm_as_published() -> None:
    assert holm(P) == pytest.approx([0.012, 0.088, 0.39, 0.39, 0.39, 0.42, 0.444, 1, 1, 1, 1, 1])


def test_order_of_the_tests_does_not_matter() -> None:
    turned = holm(P[::-1])
    assert turned[::-1] == pytest.approx(holm(P))


def test_weight_is_a_share_of_the_level() -> None:
    """The whole has half of it beside ten tags: a p of .004 is enough at .01."""
    adjusted = holm([0.004, *[0.5] * 10], [0.5, *[0.05] * 10])
    assert adjusted[0] == pytest.approx(0.008)


def test_many_families_are_adjusted_as_one_by_one() -> None:
    random = np.random.default_rng(7)
    p, weights = random.random((50, 4)) ** 3, np.array([0.5, 0.2, 0.2, 0.1])
    together = holm_rows(p, weights)
    for row, adjusted in zip(p, together, strict=True):
        assert holm(list(row), list(weights)) == pytest.approx(list(adjusted))


def test_level_holds_when_nothing_is_true() -> None:
    random = np.random.default_rng(8)
    adjusted = holm_rows(random.random((20_000, 6)), np.array([0.5, *[0.1] * 5]))
    assert (adjusted.min(axis=1) < 0.05).mean() == pytest.approx(0.05, abs=0.006)
