"""Runs of suites seen to their ends: their jobs worked on here, or followed on a server."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from batchjobs.cli.following import follow
from batchjobs.cli.running import work_through
from batchjobs.errors import Interrupted
from batchjobs.evals.finishing import advance, load, open_jobs
from batchjobs.evals.states import ENDED, RunState
from batchjobs.evals.tables import EvalRun
from batchjobs.evals.workplace import Workplace

if TYPE_CHECKING:
    from batchjobs.worker.engines import KeptEngines


class Course:
    """`quiet` keeps standard output for a program. A model stays loaded between jobs."""

    def __init__(self, place: Workplace, *, quiet: bool = False) -> None:
        self._place = place
        self._quiet = quiet
        self._engines: KeptEngines | None = None

    def say(self, sentence: str) -> None:
        click.echo(sentence, err=self._quiet)

    def see_through(self, run_ids: Sequence[str]) -> list[EvalRun]:
        """The runs when all have ended. Raises Interrupted with how to go on."""
        go_on = f"batchjobs evals resume {' '.join(run_ids)}"
        told: set[str] = set()
        before: list[RunState] = []
        try:
            while True:
                found = [advance(self._place, run_id) for run_id in run_ids]
                if all(run.state in ENDED for run in found):
                    return found
                is_busy = False
                for run in found:
                    self._tell_of_confirmation(run, told)
                    for job_id in open_jobs(self._place, run):
                        self._finish_job(job_id, go_on)
                        is_busy = True
                states = [run.state for run in found]
                if not is_busy and states == before:
                    # Others are at it: at runs that are judged with these, or at their jobs.
                    time.sleep(self._place.deployment.settings.poll_seconds)
                before = states
        except (Interrupted, KeyboardInterrupt) as stopped:
            raise Interrupted(
                f"Interrupted: what is answered is kept. Go on with: {go_on}"
            ) from stopped

    def _tell_of_confirmation(self, run: EvalRun, told: set[str]) -> None:
        from batchjobs.evals import runs

        with self._place.deployment.database.read() as session:
            rerun = runs.confirmation_of(session, run.id)
        if rerun is not None and rerun.id not in told:
            told.add(rerun.id)
            self.say(f"{run.id} is worse than the baseline; once more, to be sure: {rerun.id}")

    def _finish_job(self, job_id: str, go_on: str) -> None:
        client, here = self._place.client, self._place.client.deployment
        if here is None:
            follow(client, job_id, go_on=go_on)
            return
        from batchjobs import intake

        intake.validate(here, job_id)
        if not client.batch(job_id).is_terminal:
            work_through(client, here, job_id, self._kept_engines(), advice=f"Go on with: {go_on}")

    def _kept_engines(self) -> KeptEngines:
        from batchjobs.worker.engines import CheckpointEngines, KeptEngines

        if self._engines is None:
            settings = self._place.deployment.settings
            self._engines = KeptEngines(CheckpointEngines(settings))
        return self._engines


def leave(place: Workplace, run_ids: Sequence[str]) -> list[EvalRun]:
    """The runs as they are, for a command that does not wait."""
    return [load(place.deployment, run_id) for run_id in run_ids]
