from __future__ import annotations

import math

import pytest

from batchjobs.evals.statistics.power import fewest_flips, needed_items, smallest_drop


@pytest.mark.parametrize(
    ("items", "discordant", "points"),
    [
        (50, 0.02, 5.6), (50, 0.30, 21.7), (100, 0.05, 6.3), (200, 0.10, 6.3), (500, 0.20, 5.6),
        (1000, 0.02, 1.25), (1000, 0.30, 4.9), (1319, 0.02, 1.1), (1319, 0.10, 2.4),
    ],
)  # fmt: skip
def test_smallest_drop_as_published(items: int, discordant: float, points: float) -> None:
    drop = smallest_drop(math.sqrt(discordant / items), alpha=0.05, sides=2)
    assert 100 * drop == pytest.approx(points, abs=0.051)


@pytest.mark.parametrize(
    ("within", "samples", "items"), [(0, 1, 969), (1 / 6, 1, 3876), (1 / 6, 10, 1260)]
)
def test_needed_items_as_published(within: float, samples: int, items: int) -> None:
    variance = 1 / 9 + 2 * within / samples
    assert needed_items(variance, 0.03, alpha=0.05, sides=2) == items


@pytest.mark.parametrize(("alpha", "flips"), [(0.025, 6), (0.05, 5), (0.005, 8), (0.01, 7)])
def test_fewest_flips_that_convince(alpha: float, flips: int) -> None:
    assert fewest_flips(alpha) == flips
