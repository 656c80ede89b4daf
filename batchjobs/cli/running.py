"""A job from intake to its summary, worked on in this process."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from batchjobs.cli.delivery import Destinations, deliver
from batchjobs.cli.exits import Exit
from batchjobs.cli.progress import ProgressBar, progress_between
from batchjobs.cli.render import line_counts, print_json
from batchjobs.cli.summary import report_lines, summarize
from batchjobs.cli.view import JobView, view_job
from batchjobs.errors import Interrupted, ModelError

if TYPE_CHECKING:
    from batchjobs.deployment import Deployment
    from batchjobs.worker.progress import RunReport
    from batchjobs.worker.stop import StopSignal


class Running:
    """The rest of `submit` and `resume`, once there is a job."""

    def __init__(
        self,
        deployment: Deployment,
        job_id: str,
        *,
        destinations: Destinations,
        as_json: bool,
    ) -> None:
        self._deployment = deployment
        self._job_id = job_id
        self._destinations = destinations
        self._as_json = as_json

    def announce(self) -> None:
        """The id, by itself on the first line."""
        self._say(self._job_id)

    def enqueue(self) -> Exit:
        """Leave the job to `resume` or a worker; a bad file is told here and now."""
        view = self._validate()
        if view.is_terminal:
            return self._conclude(view)
        if self._as_json:
            print_json(view.wire())
        else:
            self._say(f"Waiting. Run it here with: {self._resume_command}")
        return Exit.DONE

    def run(self) -> Exit:
        """Work on the job until it has ended, whoever does the rest of it.

        Raises Interrupted with how to go on.
        """
        try:
            view = self._validate()
            report = None if view.is_terminal else self._work()
        except (Interrupted, KeyboardInterrupt) as stopped:
            view = view_job(self._deployment, self._job_id)
            raise Interrupted(
                f"Interrupted: {line_counts(view)}, and what is done is kept."
                f" Go on with: {self._resume_command}"
            ) from stopped
        except ModelError as unusable:
            unusable.add_note(f"The job waits. When that is mended: {self._resume_command}")
            raise
        return self._conclude(view_job(self._deployment, self._job_id), report)

    def _validate(self) -> JobView:
        from batchjobs import intake

        intake.validate(self._deployment, self._job_id)
        return view_job(self._deployment, self._job_id)

    def _work(self) -> RunReport:
        from batchjobs.worker.engines import CheckpointEngines, KeptEngines
        from batchjobs.worker.progress import RunReport
        from batchjobs.worker.runner import run_jobs

        engines = KeptEngines(CheckpointEngines(self._deployment.settings))
        stop = stop_signal(self._deployment, advice=f"Go on with: {self._resume_command}")
        reports: list[RunReport] = []
        with stop.install(), ProgressBar() as bar:
            while True:
                reports.append(
                    run_jobs(
                        self._deployment,
                        job_id=self._job_id,
                        engines=engines,
                        on_progress=bar.show,
                        stop=stop,
                    )
                )
                view = view_job(self._deployment, self._job_id)
                if view.is_terminal:
                    models = tuple(model for report in reports for model in report.models)
                    return RunReport(models=models)
                # Another worker holds the rest; should it die, its shards come to us.
                stop.check()
                bar.show(progress_between(view, view, elapsed=0.0))
                time.sleep(self._deployment.settings.poll_seconds)

    def _conclude(self, view: JobView, report: RunReport | None = None) -> Exit:
        for sentence in summarize(self._deployment, view, self._destinations):
            self._say(sentence)
        for sentence in report_lines(report) if report else ():
            self._say(sentence)
        for sentence in deliver(self._deployment, view.job, self._destinations):
            self._say(sentence)
        if self._as_json:
            print_json(view.wire())
        return view.exit_code

    @property
    def _resume_command(self) -> str:
        return f"batchjobs resume {self._job_id}{self._destinations.options}"

    def _say(self, sentence: str) -> None:
        """To a person: on standard output unless that is for a program."""
        click.echo(sentence, err=self._as_json or self._destinations.uses_stdout)


def stop_signal(deployment: Deployment, *, advice: str) -> StopSignal:
    from batchjobs.worker.stop import StopSignal

    return StopSignal(
        grace_seconds=deployment.settings.stop_grace_seconds,
        forced_exit=Exit.INTERRUPTED,
        advice=advice,
    )
