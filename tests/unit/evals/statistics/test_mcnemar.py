from __future__ import annotations

import pytest

from batchjobs.evals.statistics import mcnemar
from batchjobs.evals.statistics.comparison import compare
from batchjobs.evals.statistics.pairs import pair
from tests.unit.evals.statistics.runs import flipped, run


@pytest.mark.parametrize(
    ("fixed", "broken", "either", "worse"),
    [
        (6, 14, 0.115318, 0.057659),
        (0, 5, 0.062500, 0.031250),
        (0, 6, 0.031250, 0.015625),
        (3, 9, 0.145996, 0.072998),
        (2, 10, 0.038574, 0.019287),
        (12, 31, 0.005402, 0.002701),
        (40, 60, 0.056888, 0.028444),
        (1, 1, 1, 0.75),
        (0, 0, 1, 1),
        (28, 19, 0.24296, 0.92807),
    ],
)
def test_p_values_as_scipy_has_them(fixed: int, broken: int, either: float, worse: float) -> None:
    assert mcnemar.worse(fixed, broken) == pytest.approx(worse, abs=1e-5)
    new, old = flipped(fixed=fixed, broken=broken, items=150)
    found = compare(pair([run("new", new)], [run("old", old)]), alpha=0.01)
    assert found.p_either == pytest.approx(either, abs=1e-5)


def test_perfect_night_is_no_alarm() -> None:
    assert mcnemar.worse(0, 0) == 1.0
