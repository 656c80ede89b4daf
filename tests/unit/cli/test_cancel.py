from __future__ import annotations

from pathlib import Path

import pytest

from batchjobs.cli.exits import Exit
from batchjobs.deployment import Deployment
from batchjobs.settings import Settings
from batchjobs.worker.presence import present
from tests.support.cli import finished_job, run, run_json, waiting_job
from tests.support.jobs import answer, load_job, must_claim, open_deployment, read_records


def test_a_job_nobody_works_on_is_published_at_once(data: Path) -> None:
    with open_deployment(data) as deployment:
        job_id = waiting_job(deployment)
        assert run_json("cancel", job_id)["status"] == "cancelled"
        lines = read_records(deployment, load_job(deployment, job_id).error_file_id)
    assert [line["error"]["code"] for line in lines] == ["batch_cancelled"] * 3


def test_the_results_of_a_dead_worker_are_published_at_once(home: Path) -> None:
    with open_deployment(home) as deployment:
        job_id = waiting_job(deployment)
        answer(deployment, must_claim(deployment, owner="worker-dead"), lines=[1])
    assert "cancelled: 1 of 3 done" in run("cancel", job_id).stdout


def test_a_living_worker_is_left_to_end_it(data: Path) -> None:
    with Deployment.open(Settings.load(home=data)) as deployment:
        job_id = waiting_job(deployment)
        with present(deployment.settings.workers_dir, "worker-2"):
            must_claim(deployment, owner="worker-2")
            text = run("cancel", job_id).stdout
            assert text.startswith("cancelling: 0 of 3 done")
            assert f"batchjobs watch {job_id}" in text
            assert run_json("cancel", job_id)["cancelling_at"] is not None


@pytest.mark.parametrize("json", [[], ["--json"]])
def test_a_finished_job_cannot_be_cancelled(data: Path, json: list[str]) -> None:
    result = run("cancel", finished_job(data), *json)
    assert result.exit_code == Exit.ERROR
    assert result.stderr == "Error: Cannot cancel a batch with status 'completed'.\n"
