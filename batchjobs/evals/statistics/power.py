"""What a comparison could have seen."""

from __future__ import annotations

import math

from batchjobs.evals.statistics.intervals import normal_quantile


def smallest_drop(error: float, *, alpha: float, power: float = 0.8, sides: int = 1) -> float:
    """The drop that is found with this probability, given the standard error of the difference."""
    return _reach(alpha, power, sides) * error


def needed_items(
    variance: float, drop: float, *, alpha: float, power: float = 0.8, sides: int = 1
) -> int:
    """How many items find a drop, given the variance of one item's difference."""
    return math.ceil(_reach(alpha, power, sides) ** 2 * variance / drop**2)


def fewest_flips(alpha: float) -> int:
    """So many items must break, and none be fixed, before a one-sided test can be sure."""
    return math.ceil(math.log(1 / alpha, 2))


def _reach(alpha: float, power: float, sides: int) -> float:
    return normal_quantile(1 - alpha / sides) + normal_quantile(power)
