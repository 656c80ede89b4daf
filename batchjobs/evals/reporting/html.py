"""A report as one HTML file: no script, nothing fetched, light and dark."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import jinja2
from markupsafe import Markup

from batchjobs.evals.p_values import shown_p
from batchjobs.evals.reporting.content import Content
from batchjobs.evals.reporting.trend import trend_svg
from batchjobs.evals.tally import missing_words, shown_score
from batchjobs.evals.texts import answer_of, outcome_of, question_of

_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.PackageLoader("batchjobs.evals.reporting", "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def html_report(content: Content) -> str:
    template = _ENVIRONMENT.get_template("report.html.j2")
    return template.render(
        content=content,
        run=content.run,
        trend=Markup(trend_svg(content.trend, baseline_score(content))),  # noqa: S704  # ours
        **_HELPERS,
    )


def baseline_score(content: Content) -> float | None:
    """The mean of the pinned runs' scores; None without any."""
    metric = content.run.metric
    means = [
        run.scores[metric]["mean"]
        for run in content.baseline
        if run.scores and metric in run.scores and run.scores[metric]["mean"] is not None
    ]
    return sum(means) / len(means) if means else None


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _points(value: float | None) -> str:
    """A difference of scores."""
    return "–" if value is None else f"{value:+.4f}".replace("-", "−")


def _plural(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _drop(value: float) -> str:
    return shown_score(value) if math.isfinite(value) else "–"


def _interval(pair: Any) -> str:
    return "" if not pair else f"[{shown_score(pair[0])}, {shown_score(pair[1])}]"


_HELPERS: dict[str, Any] = {
    "score": shown_score,
    "points": _points,
    "drop": _drop,
    "p_value": shown_p,
    "plural": _plural,
    "interval": _interval,
    "missing": missing_words,
    "moment": _moment,
    "question": question_of,
    "answer": answer_of,
    "outcome": outcome_of,
}
