"""`batchjobs cancel JOB`."""

from __future__ import annotations

import click

from batchjobs.cli.command import Command


@click.command(cls=Command, example="batchjobs cancel batch_4c1f…")
@click.argument("job")
@click.option("--json", "as_json", is_flag=True, help="Print the API's batch object.")
def cancel(job: str, as_json: bool) -> None:
    """Cancel a job. Finished lines are published, the others are listed as not run."""
    from batchjobs.cli.deployment import open_deployment
    from batchjobs.cli.render import line_counts, print_json
    from batchjobs.cli.view import view_job
    from batchjobs.queue import jobs
    from batchjobs.worker.tending import tend

    with open_deployment() as deployment:
        with deployment.database.write() as session:
            jobs.cancel(session, deployment.clock, job)
        tend(deployment, job)
        view = view_job(deployment, job)
    if as_json:
        print_json(view.wire())
        return
    click.echo(f"{view.job.status}: {line_counts(view)}")
    if not view.is_terminal:
        click.echo(f"Its worker stops at the next look. See: batchjobs watch {job}")
