"""A suite's runs over time as one SVG: points, their 95 % band, the baseline. Its colours are the
classes of the page it stands in; numbers stand in a table beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from batchjobs.evals.tally import shown_score
from batchjobs.evals.trends import TrendPoint

WIDTH, HEIGHT = 720, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 12, 12, 24
_LETTERS = {"ok": "o", "worse": "w", "better": "b", "no verdict": "?"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    """Runs are evenly spaced: a night that was missed is no gap in the score."""

    count: int
    low: float
    high: float

    def x(self, index: int) -> float:
        inner = WIDTH - _LEFT - _RIGHT
        return _LEFT + inner * (0.5 if self.count == 1 else index / (self.count - 1))

    def y(self, value: float) -> float:
        """What is beyond the scale, as an interval without ends, is at its edge."""
        inner = HEIGHT - _TOP - _BOTTOM
        within = min(max(value, self.low), self.high)
        return _TOP + inner * (self.high - within) / (self.high - self.low)


def trend_svg(points: Sequence[TrendPoint], baseline: float | None) -> str:
    """Empty without points. `baseline` is the mean score of the pinned runs."""
    if not points:
        return ""
    scale = _scale(points, baseline)
    parts = [*_axis(scale), _band(points, scale), _line(points, scale)]
    if baseline is not None:
        y = scale.y(baseline)
        parts.append(
            f'<line class="baseline" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}">'
            f"<title>baseline {shown_score(baseline)}</title></line>"
        )
    parts += [_dot(point, index, scale) for index, point in enumerate(points)]
    label = f"Score of the last {len(points)} runs, from {shown_score(points[0].score)} to"
    return (
        f'<svg class="trend" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        f' aria-label="{label} {shown_score(points[-1].score)}">{"".join(parts)}</svg>'
    )


def _scale(points: Sequence[TrendPoint], baseline: float | None) -> _Scale:
    values = [value for point in points for value in (point.low, point.score, point.high)]
    known = list(filter(math.isfinite, [*values, *([] if baseline is None else [baseline])]))
    low, high = min(known), max(known)
    is_share = low >= 0 and high <= 1
    room = max(0.02 if is_share else 0.0, 0.08 * (high - low)) or 0.1 * abs(high)
    bottom, top = low - room, high + room
    if is_share:  # which has no room beyond
        bottom, top = max(0.0, bottom), min(1.0, top)
    return _Scale(count=len(points), low=bottom, high=top)


def _axis(scale: _Scale) -> list[str]:
    ticks = [scale.low + (scale.high - scale.low) * step / 4 for step in range(5)]
    return [
        f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{scale.y(tick):.1f}"'
        f' y2="{scale.y(tick):.1f}"/><text class="tick" x="{_LEFT - 6}" text-anchor="end"'
        f' y="{scale.y(tick) + 4:.1f}">{_tick(tick, scale)}</text>'
        for tick in ticks
    ]


def _tick(value: float, scale: _Scale) -> str:
    """With digits enough to tell it from its neighbours, within `_LEFT`."""
    if max(abs(scale.low), abs(scale.high)) >= 1e5:
        return f"{value:.3g}".replace("e+", "e")
    digits = math.ceil(-math.log10((scale.high - scale.low) / 4) - 1e-9)
    return f"{value:.{min(max(digits, 0) + 1, 5)}f}"


def _band(points: Sequence[TrendPoint], scale: _Scale) -> str:
    upper = [f"{scale.x(i):.1f},{scale.y(point.high):.1f}" for i, point in enumerate(points)]
    lower = [f"{scale.x(i):.1f},{scale.y(point.low):.1f}" for i, point in enumerate(points)]
    return f'<polygon class="band" points="{" ".join([*upper, *reversed(lower)])}"/>'


def _line(points: Sequence[TrendPoint], scale: _Scale) -> str:
    places = [f"{scale.x(i):.1f},{scale.y(point.score):.1f}" for i, point in enumerate(points)]
    return f'<polyline class="line" points="{" ".join(places)}"/>'


def _dot(point: TrendPoint, index: int, scale: _Scale) -> str:
    x, y = scale.x(index), scale.y(point.score)
    kind = (point.word or "none").replace(" ", "-")
    pinned = " pinned" if point.is_pinned else ""
    size = 6 if point.is_this else 4
    letter = _LETTERS.get(point.word or "", "")
    mark = f'<text class="letter" x="{x:.1f}" y="{HEIGHT - 6}" text-anchor="middle">{letter}</text>'
    return (
        f'<circle class="dot {kind}{pinned}" cx="{x:.1f}" cy="{y:.1f}" r="{size}">'
        f"<title>{escape(point.run)} ({escape(point.model)}): {shown_score(point.score)}"
        f" [{shown_score(point.low)}, {shown_score(point.high)}] {point.word or ''}</title>"
        f"</circle>{mark}"
    )
