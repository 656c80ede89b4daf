from __future__ import annotations

import time

import pytest

from batchjobs.cli.progress import describe, duration, progress_between
from batchjobs.client.batch import Batch


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00:00"), (59.6, "0:01:00"), (3723, "1:02:03"), (90061, "25:01:01")]
)
def test_durations_are_hours_minutes_and_seconds(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def batch(completed: int = 0, failed: int = 0, tokens: int = 0, **more: object) -> Batch:
    counts = {"total": 4, "completed": completed, "failed": failed}
    return Batch({"request_counts": counts, "usage": {"output_tokens": tokens}, **more})


def test_the_rest_takes_as_long_as_it_did_so_far() -> None:
    progress = progress_between(batch(), batch(1, 1, tokens=10), elapsed=10.0)
    assert (progress.done, progress.failed, progress.total) == (2, 1, 4)
    assert progress.tokens_per_second == 1.0
    assert progress.eta_seconds == 10.0
    assert describe(progress) == "1 failed, 1 tok/s, 0:00:10 left"


def test_the_rate_of_embeddings_is_that_of_their_texts() -> None:
    later = Batch({"request_counts": {}, "usage": {"input_tokens": 70, "output_tokens": 0}})
    progress = progress_between(Batch({"request_counts": {}, "usage": {}}), later, elapsed=7.0)
    assert progress.tokens_per_second == 10.0


def test_time_left_is_unknown_before_the_first_answer() -> None:
    progress = progress_between(batch(), batch(), elapsed=0.0)
    assert progress.eta_seconds is None
    assert describe(progress) == "0 failed, 0 tok/s"


def test_time_left_is_what_the_job_expects_of_itself() -> None:
    now = batch(eta=time.time() + 100)
    seconds = progress_between(batch(), now, elapsed=1.0).eta_seconds
    assert seconds is not None
    assert 90 < seconds <= 100
    past = progress_between(batch(), batch(eta=time.time() - 5), elapsed=1.0)
    assert past.eta_seconds == 0
