"""Figures of evals as the page says them. Differences of scores are told in points: hundredths."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from batchjobs.api.page.words import NOTHING
from batchjobs.evals.tally import shown_score

SMALLEST_P = 0.0001
VERDICT_TONES = {"ok": "good", "worse": "bad", "better": "live", "no verdict": "warn"}
VERDICT_LETTERS = {"ok": "o", "worse": "w", "better": "b", "no verdict": "?"}


def score(value: float | None) -> str:
    return shown_score(value)


def span(pair: Any) -> str:
    """Of an interval of scores, for example `0.62 to 0.71`."""
    return f"{shown_score(pair[0])} to {shown_score(pair[1])}" if pair else ""


def points(difference: float) -> str:
    """For example `−1.2`."""
    return f"{100 * difference:+.1f}".replace("-", "−")


def point_span(interval: Mapping[str, float]) -> str:
    """For example `−3.0 to +0.6`."""
    return f"{points(interval['low'])} to {points(interval['high'])}"


def p_value(p: float) -> str:
    return f"< {SMALLEST_P}" if p < SMALLEST_P else f"{p:.4f}"


def smallest(drop: float) -> str:
    """What a comparison could have seen, in points."""
    return f"{100 * drop:.1f}" if 100 * drop < 1000 else NOTHING


def utc(seconds: float) -> str:
    """Of seconds of the epoch, to the minute."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def verdict_tone(word: str | None) -> str:
    return VERDICT_TONES.get(word or "", "quiet")
