"""How long a step takes, learned from the steps that were made."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FIXED_POSITIONS = 27.0
"""What a step costs before its first position, in positions: reading the weights. Measured on a
CPU, and taken for true until steps have shown better."""
_PRIOR_STEPS = (1, 64, 512)
"""Positions of the steps that stand for what is taken for true."""
ENOUGH = 32
"""Steps to have seen before the size of the next ones is chosen by them."""
FIXED_SHARE = 0.05
"""Of a step's time: where less is fixed, larger steps win next to nothing."""
LARGEST = 1024
"""Positions; more would only need more memory."""
_MEMORY = 0.998
"""Weight that a step keeps with each one that follows."""
_REFRESH = 16
"""Steps from one fit to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """A step takes `fixed` + `position` for each position + `attended` for each token that a
    position attends to; in seconds, or while nothing is known in costs of a position."""

    fixed: float = FIXED_POSITIONS
    position: float = 1.0
    attended: float = 0.0

    def of(self, positions: float, attended: float) -> float:
        return self.fixed + self.position * positions + self.attended * attended

    def row(self, context: int) -> float:
        """One more position, which attends to so many tokens."""
        return self.position + self.attended * context


class StepTimes:
    """Least relative squares over the steps seen, older ones weighing less.

    By relative error a step that something else held up weighs little, as its time is long. A few
    made-up steps hold the fit where all real ones were alike.
    """

    def __init__(self) -> None:
        self._normal: NDArray[np.float64] = np.zeros((3, 3))
        self._target: NDArray[np.float64] = np.zeros(3)
        self._seconds_per_position = 0.0
        self._since_fit = 0
        self._context = 0.0
        self._cost = StepCost()
        self.steps = 0

    def observe(self, *, positions: int, attended: int, seconds: float) -> None:
        """A step of so many positions, which attended to so many tokens in all."""
        if seconds <= 0 or positions <= 0:
            return
        row = np.array([1.0, positions, attended]) / seconds
        self._normal = _MEMORY * self._normal + np.outer(row, row)
        self._target = _MEMORY * self._target + row
        unit = seconds / (FIXED_POSITIONS + positions)
        share = max(1 - _MEMORY, 1 / (self.steps + 1))
        self._seconds_per_position += share * (unit - self._seconds_per_position)
        self._context += share * (attended / positions - self._context)
        self.steps += 1
        self._since_fit += 1

    @property
    def cost(self) -> StepCost:
        """As of the last fit."""
        if self._since_fit >= _REFRESH or (self._since_fit and self.steps < _REFRESH):
            self._since_fit = 0
            self._cost = self._fit()
        return self._cost

    def budget(self, seconds: float) -> int | None:
        """Positions of the step from which on a larger one wins nothing or lasts longer than
        `seconds`; None while too little is known."""
        if self.steps < ENOUGH:
            return None
        cost = self.cost
        position = cost.row(round(self._context))
        if position <= 0:
            return LARGEST
        pays = cost.fixed * (1 / FIXED_SHARE - 1) / position
        return int(min(LARGEST, pays, (seconds - cost.fixed) / position))

    def _fit(self) -> StepCost:
        normal, target = self._normal.copy(), self._target.copy()
        for positions in _PRIOR_STEPS:
            seconds = self._seconds_per_position * (FIXED_POSITIONS + positions)
            row = np.array([1.0, positions, 0.0]) / seconds
            normal += np.outer(row, row)
            target += row
        return StepCost(**dict(zip(_NAMES, _non_negative(normal, target), strict=True)))


_NAMES = ("fixed", "position", "attended")


def _non_negative(normal: NDArray[np.float64], target: NDArray[np.float64]) -> list[float]:
    """Solve the normal equations; what comes out negative is left out, the smallest first."""
    solution = np.zeros(len(target))
    kept = list(range(len(target)))
    while kept:
        # Scaled by the diagonal, as the columns differ by orders of magnitude.
        scale = np.sqrt(np.diag(normal)[kept])
        scale[scale == 0] = 1.0
        part = normal[np.ix_(kept, kept)] / np.outer(scale, scale)
        values = np.linalg.lstsq(part, target[kept] / scale, rcond=None)[0] / scale
        if (values >= 0).all():
            solution[kept] = values
            break
        del kept[int((values * scale).argmin())]
    return [float(value) for value in solution]
