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
    from batchjobs.worker.progress import Progress


@click.command(cls=Command, example="batchjobs watch batch_4c1f…")
@click.argument("job")
@click.option("--json", "as_json", is_flag=True, help="Print the API's batch object at the end.")
def watch(job: str, as_json: bool) -> Exit:
    """Show the progress of a job that another process runs, until it has ended.

    Ends with the exit code that `submit` would end with.
    """
    from batchjobs.cli.delivery import Destinations
    from batchjobs.cli.deployment import open_deployment
    from batchjobs.cli.render import print_json
    from batchjobs.cli.summary import summarize

    with open_deployment() as deployment:
        view = follow(deployment, job)
        if as_json:
            print_json(view.wire())
            return view.exit_code
        for sentence in summarize(deployment, view, Destinations(output=None, errors=None)):
            click.echo(sentence)
    return view.exit_code


def follow(deployment: Deployment, job_id: str) -> JobView:
    """Look every `poll_seconds` until the job has ended; how it ended."""
    from batchjobs.cli.progress import ProgressBar
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


def progress_between(first: JobView, now: JobView, elapsed: float) -> Progress:
    """What happened to a job in `elapsed` seconds, and how long the rest takes at that rate."""
    from batchjobs.worker.progress import Progress, estimate_remaining_tokens

    before, after = first.tally, now.tally
    completion = after.completion_tokens - before.completion_tokens
    computed = completion + after.prompt_tokens - before.prompt_tokens
    remaining = estimate_remaining_tokens(
        after, total_lines=now.job.total_lines, total_bytes=now.job.total_bytes
    )
    known = remaining is not None and computed > 0
    return Progress(
        done=now.finished_lines,
        failed=after.failed,
        total=now.job.total_lines,
        prompt_tokens=after.prompt_tokens,
        completion_tokens=after.completion_tokens,
        tokens_per_second=completion / elapsed if elapsed else 0.0,
        eta_seconds=(remaining or 0.0) * elapsed / computed if known else None,
        running=0,
        waiting=0,
    )


def _is_worked_on(deployment: Deployment, job_id: str) -> bool:
    from batchjobs.queue import claims

    with deployment.database.read() as session:
        return claims.live_shards(session, job_id) > 0
