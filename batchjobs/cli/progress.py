"""The progress bar: requests done, failed, tokens a second, time left."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from batchjobs.client.batch import Batch
    from batchjobs.worker.progress import Progress

_FORMAT = "{n_fmt}/{total_fmt} |{bar:24}| {desc}"


class ProgressBar:
    """On standard error, and only if that is a terminal."""

    def __init__(self) -> None:
        self._bar: Any = None

    def __enter__(self) -> Self:
        from tqdm import tqdm

        self._bar = tqdm(
            total=1,
            desc="starting",
            file=sys.stderr,
            disable=None,
            bar_format=_FORMAT,
            leave=False,
        )
        return self

    def show(self, progress: Progress) -> None:
        self._bar.total = progress.total
        self._bar.n = progress.done
        self._bar.set_description_str(describe(progress))

    def say(self, sentence: str) -> None:
        """A line above the bar, also where there is none."""
        from tqdm import tqdm

        tqdm.write(sentence, file=sys.stderr)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.close()


def progress_between(first: Batch, now: Batch, elapsed: float) -> Progress:
    """What happened to a job in `elapsed` seconds, and how long the rest takes at that rate."""
    from batchjobs.worker.progress import Progress

    tokens = now.completion_tokens - first.completion_tokens
    if not now.completion_tokens:  # of embeddings, the tokens of their texts
        tokens = now.prompt_tokens - first.prompt_tokens
    return Progress(
        done=now.finished_lines,
        failed=now.failed_lines,
        total=now.total_lines,
        prompt_tokens=now.prompt_tokens,
        completion_tokens=now.completion_tokens,
        tokens_per_second=tokens / elapsed if elapsed else 0.0,
        eta_seconds=_seconds_left(first, now, elapsed),
        running=0,
        waiting=0,
    )


def _seconds_left(first: Batch, now: Batch, elapsed: float) -> float | None:
    """What the job's own outlook says; without one, the rest takes as long as what was done."""
    if now.eta is not None:
        return max(0.0, now.eta - time.time())
    done = now.finished_lines - first.finished_lines
    return (now.total_lines - now.finished_lines) * elapsed / done if done else None


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
