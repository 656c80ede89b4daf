"""Slots over time as a picture, one strip for each way."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from batchjobs.errors import UsageError
from batchjobs.worker.bench.ways import WayResult

_BUSY, _IDLE = "#2b6cb0", "#f6c9b8"
_WIDTH, _STRIP = 10.0, 2.3


def check_can_draw() -> None:
    """Raises UsageError when matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(
            "The picture is drawn with matplotlib, which is not installed: pip install"
            " 'batchjobs[bench]', or leave the picture out with --no-picture."
        )


def draw(results: Sequence[WayResult], path: Path, *, heading: str) -> None:
    """A PNG: how many of each way's slots make an answer at any time, all on one time axis."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, 0.9 + _STRIP * len(results)), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(heading, fontsize=12)
    strips = figure.subplots(len(results), 1, sharex=True, squeeze=False)[:, 0]
    for strip, result in zip(strips, results, strict=True):
        _strip(strip, result)
    strips[-1].set_xlabel("seconds")
    handles, labels = strips[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(path, format="png", dpi=120)


def _strip(axes: Any, result: WayResult) -> None:
    figures = result.figures
    times = [moment.at for moment in result.course]
    running = [moment.running for moment in result.course]
    axes.fill_between(
        [0, figures.wall_seconds], figures.slots, color=_IDLE, linewidth=0, label="idle slots"
    )
    axes.fill_between(
        times, running, step="post", color=_BUSY, linewidth=0, label="slots with an answer"
    )
    axes.set_title(
        f"{result.name} ({result.title}): {figures.output_rate:,.0f} tok/s out"
        f" in {figures.wall_seconds:,.0f} s, {figures.occupancy:.0%} of slots busy,"
        f" {figures.useful_share:.0%} of positions useful",
        fontsize=9.5,
        loc="left",
    )
    axes.set_ylim(0, figures.slots)
    axes.set_ylabel("slots")
    axes.margins(x=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
