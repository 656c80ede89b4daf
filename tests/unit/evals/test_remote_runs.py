"""Runs that are kept here and answered by a server."""

from __future__ import annotations

from pathlib import Path

from batchjobs.client.remote import RemoteClient
from batchjobs.evals.finishing import advance, open_jobs
from batchjobs.evals.states import RunState
from batchjobs.evals.workplace import Workplace
from tests.support.engines import add_models
from tests.support.evals import MODEL, answer_job, rows, start_suite, write_suite
from tests.support.jobs import open_deployment
from tests.support.served import alive, serving


def test_a_server_answers_and_the_scores_are_kept_here(tmp_path: Path) -> None:
    with (
        open_deployment(tmp_path / "here") as here,
        open_deployment(tmp_path / "there", poll_seconds=0.02) as there,
        alive(there, "worker-1"),
        serving(there) as url,
        RemoteClient(url) as client,
    ):
        add_models(there, MODEL)
        place = Workplace(deployment=here, client=client)
        run_id = start_suite(place, write_suite(tmp_path, rows(5)))
        [job] = open_jobs(place, advance(place, run_id))
        answer_job(there, job, lambda text: "7" if text == "1" else text)
        batch = client.batch(job)
        while not batch.is_terminal:
            batch = client.wait(batch, seconds=5)
        run = advance(place, run_id)
        assert run.state == RunState.FINISHED
        assert run.scores is not None
        assert run.scores["numeric"]["mean"] == 0.8
        assert batch.metadata["eval_run"] == run_id
