"""The doorbell: "there may be work for model M", said to whichever worker is idle.

| what may happen to a message | why no line is lost or doubled |
|---|---|
| lost, late, or the broker is down | workers look into the database every poll_seconds as well |
| doubled, or rung for nothing | a worker that looks finds nothing to claim |

So ringing is done after the commit, once, and a failure is logged and forgotten.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class Bell(Protocol):
    def ring(self, models: Collection[str]) -> None:
        """Tell the workers of these models, named as in the catalogue. Never raises."""


class NoBell:
    """Workers find out by themselves."""

    def ring(self, models: Collection[str]) -> None:
        pass
