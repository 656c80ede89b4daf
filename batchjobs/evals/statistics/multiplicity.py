"""p-values of many tests at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from batchjobs.evals.statistics.arrays import Floats


def holm(p_values: Sequence[float], weights: Sequence[float] | None = None) -> list[float]:
    """Adjusted so that "any false alarm at all" keeps the level (Holm 1979, also with weights: the
    share of the level that a test may spend first)."""
    shares = np.array(weights or [1.0] * len(p_values))
    return [float(p) for p in holm_rows(np.array([p_values]), shares)[0]]


def holm_rows(p_values: Floats, weights: Floats) -> Floats:
    """The same for many families, one a row; p_values [N, K], weights [K]."""
    order = np.argsort(p_values / weights, axis=1, kind="stable")
    sorted_p = np.take_along_axis(p_values, order, axis=1)
    sorted_weights = weights[order]
    left = np.cumsum(sorted_weights[:, ::-1], axis=1)[:, ::-1]
    steps = np.maximum.accumulate(np.minimum(1.0, sorted_p * left / sorted_weights), axis=1)
    adjusted = np.empty_like(steps)
    np.put_along_axis(adjusted, order, steps, axis=1)
    return adjusted
