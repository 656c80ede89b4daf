"""When a failed delivery is tried again, and when no more: the times of Standard Webhooks."""

from __future__ import annotations

import random
from datetime import timedelta

HOUR = 3600
PAUSES = (5, 300, 1800, *(hours * HOUR for hours in (2, 5, 10, 14, 20, 24)))
"""Seconds before each next attempt: ten attempts in about three days."""
JITTER = 0.08
"""So small that no later pause is shorter: 20 h and 8 % are less than 24 h less 8 %."""


class DeliveryError(Exception):
    """One attempt failed. `is_final`: another would too; `wait_seconds`: what the receiver asks."""

    def __init__(
        self, message: str, *, is_final: bool = False, wait_seconds: float | None = None
    ) -> None:
        super().__init__(message)
        self.is_final = is_final
        self.wait_seconds = wait_seconds


def pause_after(attempt: int, failed: DeliveryError) -> timedelta | None:
    """None to give up. `attempt` counts from 1."""
    if failed.is_final or attempt > len(PAUSES):
        return None
    pause = PAUSES[attempt - 1] * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311
    return timedelta(seconds=max(pause, min(failed.wait_seconds or 0, PAUSES[-1])))
