"""Probabilities as people read them: one that is small is not none."""

from __future__ import annotations

SMALLEST = 0.0001


def shown_p(p: float, *, equals: str = "") -> str:
    """For example `0.0312`, behind `equals`; or `< 0.0001`."""
    return f"{equals}{p:.4f}" if p >= SMALLEST else f"< {SMALLEST}"
