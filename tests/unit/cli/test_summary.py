"""What is said of a run at its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchjobs.cli.summary import report_lines
from batchjobs.worker.runner import run_jobs
from batchjobs.worker.stop import StopSignal
from tests.support.engines import FakeEngines, add_models
from tests.support.jobs import MODEL, open_deployment, request_line, start_job


@pytest.mark.parametrize(
    ("max_tokens", "said"),
    [(10_000, f"{MODEL}: answered no line, in "), (3, f"{MODEL}: ")],
)
def test_rates_are_told_of_a_run_that_answered_anything(
    tmp_path: Path, max_tokens: int, said: str
) -> None:
    with open_deployment(tmp_path) as deployment:
        add_models(deployment, MODEL)
        requests = [request_line(f"line-{number}") for number in range(6)]
        for request in requests:
            request["body"] |= {"max_tokens": max_tokens}
        job_id = start_job(deployment, requests)
        stop = StopSignal(grace_seconds=60, forced_exit=9)
        report = run_jobs(deployment, job_id=job_id, engines=FakeEngines(), stop=stop)
    first, *rest = report_lines(report)
    assert first.startswith(said)
    assert ("tok/s" in first, bool(rest)) == (max_tokens == 3, max_tokens == 3)
