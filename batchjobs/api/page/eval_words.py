"""Figures of evals as the page says them. Differences of scores are told in points: hundredths."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from batchjobs.api.page.words import NOTHING
from batchjobs.evals.p_values import shown_p
from batchjobs.evals.tally import shown_score

MAX_DIGITS = 1e6
"""Points beyond it are told with a power of ten."""
VERDICT_TONES = {"ok": "good", "worse": "bad", "better": "live", "no verdict": "warn"}
VERDICT_LETTERS = {"ok": "o", "worse": "w", "better": "b", "no verdict": "?"}


def score(value: float | None) -> str:
    return _with_signs(shown_score(value))


def span(pair: Any) -> str:
    """Of an interval of scores, for example `0.62 to 0.71`."""
    return f"{score(pair[0])} to {score(pair[1])}" if pair else ""


def points(difference: float) -> str:
    """For example `−1.2`; `0.0` of what is less than can be told."""
    text = _hundredths(difference, sign="+")
    return "0.0" if text in ("+0.0", "-0.0") else _with_signs(text)


def point_span(interval: Mapping[str, float]) -> str:
    """For example `−3.0 to +0.6`."""
    return f"{points(interval['low'])} to {points(interval['high'])}"


def p_value(p: float) -> str:
    return shown_p(p)


def smallest(drop: float) -> str:
    """What a comparison could have seen, in points."""
    return _hundredths(drop) if math.isfinite(drop) else NOTHING


def sight(drop: float) -> str:
    """The same as a sentence."""
    return f"sees drops of {smallest(drop)} points" if math.isfinite(drop) else "sees no drop"


def figure(value: float | None) -> str:
    """For a script; empty if it cannot be drawn."""
    return f"{value:.9g}" if value is not None and math.isfinite(value) else ""


def utc(seconds: float) -> str:
    """Of seconds of the epoch, to the minute."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def verdict_tone(word: str | None) -> str:
    return VERDICT_TONES.get(word or "", "quiet")


def _hundredths(value: float, *, sign: str = "") -> str:
    number = 100 * value
    return f"{number:{sign}.1f}" if abs(number) < MAX_DIGITS else f"{number:{sign}.4g}"


def _with_signs(number: str) -> str:
    return number.replace("-", "−").replace("inf", "∞")
