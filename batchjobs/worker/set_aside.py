"""Models that cannot be used now: a worker that stays goes on with the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

TRY_AGAIN_SECONDS = 300.0


class SetAside:
    """Each for `TRY_AGAIN_SECONDS`; then it is tried again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def add(self, model: str) -> None:
        self._until[model] = self._clock() + TRY_AGAIN_SECONDS

    @property
    def names(self) -> frozenset[str]:
        now = self._clock()
        return frozenset(name for name, until in self._until.items() if now < until)

    def has_all(self, models: Collection[str] | None) -> bool:
        """Whether nothing is left of the models that a worker serves; None is any model."""
        return models is not None and self.names >= set(models)
