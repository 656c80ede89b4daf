"""The progress bar: requests done, failed, tokens a second, time left."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from batchjobs.worker.progress import Progress

_FORMAT = "{n_fmt}/{total_fmt} |{bar:24}| {desc}"


class ProgressBar:
    """On standard error, and only if that is a terminal."""

    def __init__(self) -> None:
        self._bar: Any = None

    def __enter__(self) -> Self:
        from tqdm import tqdm

        self._bar = tqdm(file=sys.stderr, disable=None, bar_format=_FORMAT, leave=False, total=1)
        self._bar.set_description_str("starting")
        return self

    def show(self, progress: Progress) -> None:
        self._bar.total = progress.total
        self._bar.n = progress.done
        self._bar.set_description_str(describe(progress))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.close()


def describe(progress: Progress) -> str:
    """For example `2 failed, 213 tok/s, 0:01:20 left`."""
    words = [f"{progress.failed:,} failed", f"{progress.tokens_per_second:,.0f} tok/s"]
    if progress.eta_seconds is not None:
        words.append(f"{duration(progress.eta_seconds)} left")
    return ", ".join(words)


def duration(seconds: float) -> str:
    """For example `1:02:03`, with the hours counted on past a day."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
