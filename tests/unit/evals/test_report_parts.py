"""Parts of reports that a page cannot show wrong without anyone noticing."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from batchjobs.evals.reporting.content import TrendPoint
from batchjobs.evals.reporting.markdown import cell
from batchjobs.evals.reporting.trend import HEIGHT, trend_svg
from batchjobs.evals.tally import shown_score


def point(score: float, *, word: str | None = None, name: str = "run_1") -> TrendPoint:
    return TrendPoint(
        run=name,
        model="m",
        at=0.0,
        score=score,
        low=score - 0.05,
        high=score + 0.05,
        word=word,
        is_pinned=False,
        is_this=False,
    )


def test_a_higher_score_stands_higher() -> None:
    svg = trend_svg([point(0.2), point(0.8, word="better")], baseline=0.5)
    first, second = [float(y) for y in re.findall(r'cy="([\d.]+)"', svg)]
    baseline = float(re.findall(r'class="baseline"[^>]* y1="([\d.]+)"', svg)[0])
    assert 0 < second < baseline < first < HEIGHT
    assert 'class="dot better"' in svg


@pytest.mark.parametrize(
    ("score", "low", "high"),
    [(0.5, -math.inf, math.inf), (1e13, 9e12, 1.1e13), (-3e-5, -4e-5, 0.0)],
)
def test_curve_of_any_score_stays_on_its_picture(score: float, low: float, high: float) -> None:
    svg = trend_svg([replace(point(score), low=low, high=high), point(score)], baseline=score)
    assert not re.search(r"\b(nan|inf)\b", re.sub("<title>.*?</title>", "", svg))
    numbers = re.findall(r'c?y\d?="(-?[\d.]+)"', svg)
    assert all(0 <= float(y) <= HEIGHT for y in numbers)
    ticks = re.findall(r'class="tick"[^>]*>([^<]+)<', svg)
    assert len(set(ticks)) == 5
    assert max(map(len, ticks)) <= 9


def test_names_are_escaped_and_no_point_is_no_picture() -> None:
    assert "<x>" not in trend_svg([point(0.5, name="<x>")], None)
    assert trend_svg([], None) == ""


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (float("nan"), "–"),
        (1.0, "1"),
        (1e-17, "0"),
        (-1e-9, "0"),
        (0.91666, "0.9167"),
        (1.05e13, "1.05e+13"),
        (-math.inf, "-∞"),
    ],
)
def test_scores_are_shown_with_four_decimals(value: float | None, shown: str) -> None:
    assert shown_score(value) == shown


def test_markdown_is_made_harmless() -> None:
    assert cell("a\n| *b* <i>") == "a \\| \\*b\\* \\<i\\>"
