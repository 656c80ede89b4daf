from __future__ import annotations

import numpy as np
import pytest

from batchjobs.evals.statistics.intervals import (
    Interval,
    bootstrap,
    newcombe,
    normal_quantile,
    student,
    wilson,
)


def near(interval: Interval, low: float, high: float, tolerance: float = 1e-6) -> bool:
    return abs(interval.low - low) < tolerance and abs(interval.high - high) < tolerance


@pytest.mark.parametrize(
    ("right", "n", "low", "high"),
    [
        (0, 10, 0, 0.277533),
        (10, 10, 0.722467, 1),
        (1, 20, 0.008881, 0.236131),
        (87, 100, 0.790196, 0.922428),
        (100, 100, 0.963007, 1),
        (850, 1000, 0.826531, 0.870790),
        (1122, 1319, 0.830391, 0.868861),
    ],
)
def test_wilson_as_statsmodels_has_it(right: int, n: int, low: float, high: float) -> None:
    assert near(wilson(right, n), low, high)


def test_newcombe_as_published() -> None:
    assert near(newcombe(12, 2, 36, 0), 0.0569, 0.3404, 5e-5)


def test_newcombe_of_correlated_answers() -> None:
    assert near(newcombe(6, 14, 150, 30), -0.086106, 0.005016)


def test_newcombe_of_two_perfect_runs_is_not_a_point() -> None:
    interval = newcombe(0, 0, 50, 0)
    assert interval.low < -0.05
    assert interval.high > 0.05


def test_student_of_five_clusters() -> None:
    assert near(student(0.55, 0.183712, 5), 0.039934, 1.060066, 2e-6)


def test_one_cluster_says_nothing() -> None:
    assert student(0.5, float("nan"), 1) == Interval(-np.inf, np.inf)


def test_bootstrap_agrees_with_the_published_percentiles() -> None:
    sums = np.array([1.0] * 6 + [-1.0] * 14 + [0.0] * 180)
    assert near(bootstrap(sums, np.ones(200)), -0.085, 0.0, 0.0051)


def test_bootstrap_draws_whole_clusters() -> None:
    """Ten copies of everything are no more evidence."""
    sums = np.array([1.0] * 12 + [-1.0] * 28 + [0.0] * 60)
    once, ten_times = bootstrap(sums, np.ones(100)), bootstrap(10 * sums, np.full(100, 10.0))
    assert once == ten_times


def test_normal_quantiles() -> None:
    assert normal_quantile(0.975) == pytest.approx(1.959964, abs=1e-6)
    assert normal_quantile(0.8) == pytest.approx(0.841621, abs=1e-6)
