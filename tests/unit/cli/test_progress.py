from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from batchjobs.cli.progress import describe, duration, progress_between
from batchjobs.cli.view import view_job
from tests.support.cli import waiting_job
from tests.support.jobs import answer, must_claim, open_deployment


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00:00"), (59.6, "0:01:00"), (3723, "1:02:03"), (90061, "25:01:01")]
)
def test_durations_are_hours_minutes_and_seconds(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_rest_takes_as_long_as_it_did_so_far(home: Path) -> None:
    with open_deployment(home) as deployment:
        job_id = waiting_job(deployment, 4)
        before = view_job(deployment, job_id)
        answer(deployment, must_claim(deployment), failed=[2])
        now = view_job(deployment, job_id)
    # Parts of the test jobs count 100 bytes, 10 prompt and 5 completion tokens a line.
    sized = replace(now, job=now.job)
    sized.job.total_bytes = 400
    progress = progress_between(before, sized, elapsed=10.0)
    assert (progress.done, progress.failed, progress.total) == (2, 1, 4)
    assert progress.tokens_per_second == 1.0
    assert progress.eta_seconds == 10.0
    assert describe(progress) == "1 failed, 1 tok/s, 0:00:10 left"


def test_time_left_is_unknown_before_the_first_answer(home: Path) -> None:
    with open_deployment(home) as deployment:
        view = view_job(deployment, waiting_job(deployment))
    progress = progress_between(view, view, elapsed=0.0)
    assert progress.eta_seconds is None
    assert describe(progress) == "0 failed, 0 tok/s"
