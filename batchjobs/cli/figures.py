"""How a run went, as rows of a name and a value for each way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from batchjobs.worker.run_figures import RunFigures

UNKNOWN = "–"
Rows = list[tuple[str, ...]]


def figure_rows(ways: Sequence[RunFigures], price_per_hour: float | None = None) -> Rows:
    """A row for each figure, with a cell for each way; figures that no way has are left out."""
    rows = [(name, *(show(figures) for figures in ways)) for name, show in _FIGURES]
    if price_per_hour is not None:
        price = price_per_hour
        rows.append(
            ("cost per million tokens generated", *(_cost(figures, price) for figures in ways))
        )
    return [row for row in rows if set(row[1:]) != {UNKNOWN}]


def aligned(rows: Sequence[Sequence[str]], indent: str = "  ") -> Iterator[str]:
    """The rows as lines; the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *rest in rows:
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        yield indent + "  ".join([first.ljust(widths[0]), *cells]).rstrip()


def _cost(figures: RunFigures, price_per_hour: float) -> str:
    cost = figures.cost_per_million(price_per_hour)
    return UNKNOWN if cost is None else f"{cost:,.2f}"


def _seconds(value: float) -> str:
    return f"{1000 * value:,.0f} ms" if value < 10 else f"{value:,.1f} s"


def _pair(p50: float, p99: float) -> str:
    return f"{_seconds(p50)} / {_seconds(p99)}"


def _kv_peak(figures: RunFigures) -> str:
    if figures.kv_peak_share is None:
        return UNKNOWN
    share = f"{figures.kv_peak_share:.1%}"
    return (
        share
        if figures.kv_peak_bytes is None
        else f"{figures.kv_peak_bytes / 1e6:,.0f} MB, {share}"
    )


def _guesses(figures: RunFigures) -> str:
    guessed, right = figures.guessed_tokens, figures.right_guesses
    return f"{guessed:,}, {right / guessed:.1%}" if guessed else UNKNOWN


def _peak(figures: RunFigures) -> str:
    if figures.roofline is None:
        return UNKNOWN
    peak = figures.roofline
    return f"{peak.sgemm_best_gflops:,.0f} / {peak.sgemm_median_gflops:,.0f} GFLOP/s"


def _packed_peak(figures: RunFigures) -> str:
    if figures.roofline is None or figures.roofline.packed_best_gflops is None:
        return UNKNOWN
    return f"{figures.roofline.packed_best_gflops:,.0f} GFLOP/s"


def _bandwidth(figures: RunFigures) -> str:
    peak = figures.roofline
    return UNKNOWN if peak is None else f"{peak.read_gbytes_per_second:,.1f} GB/s"


def _share(figures: RunFigures) -> str:
    return UNKNOWN if figures.roofline is None else f"{figures.roofline.share:.1%}"


def _packed_share(figures: RunFigures) -> str:
    if figures.roofline is None or figures.roofline.packed_share is None:
        return UNKNOWN
    return f"{figures.roofline.packed_share:.1%}"


def _of_answers(show: Callable[[RunFigures], str]) -> Callable[[RunFigures], str]:
    """Of runs that generated anything: embeddings have none of it."""
    return lambda figures: show(figures) if figures.output_tokens else UNKNOWN


_FIGURES: tuple[tuple[str, Callable[[RunFigures], str]], ...] = (
    ("wall time", lambda f: f"{f.wall_seconds:,.1f} s"),
    ("generated", _of_answers(lambda f: f"{f.output_rate:,.1f} tok/s")),
    ("prompt and generated", lambda f: f"{f.total_rate:,.1f} tok/s"),
    ("slots, busy on average", _of_answers(lambda f: f"{f.slots:,}, {f.occupancy:.1%}")),
    ("useful positions", lambda f: f"{f.useful_share:.1%} of {f.computed_positions:,}"),
    (
        "first token p50 / p99",
        _of_answers(lambda f: _pair(f.first_token_p50, f.first_token_p99)),
    ),
    ("step p50 / p99", lambda f: _pair(f.step_p50, f.step_p99)),
    ("steps", lambda f: f"{f.steps:,}"),
    ("preemptions", _of_answers(lambda f: f"{f.preemptions:,}")),
    ("tokens computed again", _of_answers(lambda f: f"{f.recomputed_tokens:,}")),
    ("guessed tokens, right", _guesses),
    ("KV cache at most", _kv_peak),
    ("matrix products, best / median", _peak),
    ("with packed weights, best", _packed_peak),
    ("memory, reading", _bandwidth),
    ("share of roofline", _share),
    ("by products with packed weights", _packed_share),
)
