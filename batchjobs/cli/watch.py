"""`batchjobs watch JOB`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from batchjobs.cli.command import Command
from batchjobs.cli.exits import Exit

if TYPE_CHECKING:
    from batchjobs.cli.view import JobView
    from batchjobs.deployment import Deployment


@click.command(cls=Command, example="batchjobs watch batch_4c1f…")
@click.argument("job")
@click.option("--json", "as_json", is_flag=True, help="Print the API's batch object at the end.")
def watch(job: str, as_json: bool) -> Exit:
    """Follow a job that another process runs.

    Ends when the job has ended, with the exit code that `submit` would end with.
    """
    from batchjobs.cli.delivery import Destinations
    from batchjobs.cli.deployment import open_deployment
    from batchjobs.cli.render import print_json
    from batchjobs.cli.summary import summarize
    from batchjobs.errors import Interrupted

    with open_deployment() as deployment:
        try:
            view = follow(deployment, job)
        except KeyboardInterrupt as stopped:
            raise Interrupted("Stopped watching; the job goes on.") from stopped
        if as_json:
            print_json(view.wire())
            return view.exit_code
        for sentence in summarize(deployment, view, Destinations(output=None, errors=None)):
            click.echo(sentence)
    return view.exit_code


def follow(deployment: Deployment, job_id: str) -> JobView:
    """Look every `poll_seconds` until the job has ended; how it ended."""
    from batchjobs.cli.progress import ProgressBar, progress_between
    from batchjobs.cli.view import view_job

    view = first = view_job(deployment, job_id)
    if not view.is_terminal and not _is_worked_on(deployment, job_id):
        click.echo(
            f"No worker has this job now. Run it here with: batchjobs resume {job_id}", err=True
        )
    began = time.monotonic()
    with ProgressBar() as bar:
        while not view.is_terminal:
            bar.show(progress_between(first, view, time.monotonic() - began))
            time.sleep(deployment.settings.poll_seconds)
            view = view_job(deployment, job_id)
    return view


def _is_worked_on(deployment: Deployment, job_id: str) -> bool:
    from batchjobs.queue import claims

    with deployment.database.read() as session:
        return claims.live_shards(session, job_id) > 0
