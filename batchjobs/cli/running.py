"""A job from intake to its summary, worked on in this process."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from batchjobs.cli.account import Account
from batchjobs.cli.exits import Exit
from batchjobs.cli.progress import ProgressBar, progress_between
from batchjobs.cli.render import line_counts
from batchjobs.cli.summary import report_lines
from batchjobs.client.base import Client
from batchjobs.client.batch import Batch
from batchjobs.errors import Interrupted, ModelError

if TYPE_CHECKING:
    from batchjobs.deployment import Deployment
    from batchjobs.worker.engines import KeptEngines
    from batchjobs.worker.progress import RunReport
    from batchjobs.worker.stop import StopSignal


class Running:
    """The rest of `submit` and `resume` where the data is here."""

    def __init__(
        self, client: Client, deployment: Deployment, account: Account, *, profile: bool = False
    ) -> None:
        self._client = client
        self._profile = profile
        self._deployment = deployment
        self._account = account

    def leave(self, job_id: str) -> Exit:
        """To `resume` or a worker; a bad file is told here and now."""
        batch = self._validate(job_id)
        if batch.is_terminal:
            return self._account.conclude(batch)
        how = f"Waiting. Run it here with: {self._account.resume_command(job_id)}"
        return self._account.leave(batch, how)

    def run(self, job_id: str) -> Exit:
        """Work on the job until it has ended, whoever does the rest of it.

        Raises Interrupted with how to go on.
        """
        resume = self._account.resume_command(job_id)
        try:
            batch = self._validate(job_id)
            report = None if batch.is_terminal else self._work(job_id)
        except (Interrupted, KeyboardInterrupt) as stopped:
            batch = self._client.batch(job_id)
            raise Interrupted(
                f"Interrupted: {line_counts(batch)}, and what is done is kept. Go on with: {resume}"
            ) from stopped
        except ModelError as unusable:
            unusable.add_note(f"The job waits. When that is mended: {resume}")
            raise
        lines = report_lines(report) if report else ()
        return self._account.conclude(self._client.batch(job_id), lines)

    def _validate(self, job_id: str) -> Batch:
        from batchjobs import intake

        intake.validate(self._deployment, job_id)
        return self._client.batch(job_id)

    def _work(self, job_id: str) -> RunReport:
        from batchjobs.worker.engines import CheckpointEngines, KeptEngines

        engines = KeptEngines(CheckpointEngines(self._deployment.settings, profiled=self._profile))
        advice = f"Go on with: {self._account.resume_command(job_id)}"
        return work_through(self._client, self._deployment, job_id, engines, advice=advice)


def work_through(
    client: Client, deployment: Deployment, job_id: str, engines: KeptEngines, *, advice: str
) -> RunReport:
    """Work on a validated job until it has ended, whoever does the rest of it.

    Raises Interrupted; `advice` says how to go on.
    """
    from batchjobs.worker.progress import RunReport
    from batchjobs.worker.runner import run_jobs

    stop = stop_signal(deployment, advice=advice)
    reports: list[RunReport] = []
    with stop.install(), ProgressBar() as bar:
        while True:
            reports.append(
                run_jobs(
                    deployment, job_id=job_id, engines=engines, on_progress=bar.show, stop=stop
                )
            )
            batch = client.batch(job_id)
            if batch.is_terminal:
                models = tuple(model for report in reports for model in report.models)
                return RunReport(models=models)
            # Another worker holds the rest; should it die, its shards come to us.
            stop.check()
            bar.show(progress_between(batch, batch, elapsed=0.0))
            time.sleep(deployment.settings.poll_seconds)


def stop_signal(deployment: Deployment, *, advice: str) -> StopSignal:
    from batchjobs.worker.stop import StopSignal

    return StopSignal(
        grace_seconds=deployment.settings.stop_grace_seconds,
        forced_exit=Exit.INTERRUPTED,
        advice=advice,
    )
