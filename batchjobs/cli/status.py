"""`batchjobs status JOB`."""

from __future__ import annotations

import click

from batchjobs.cli.command import Command


@click.command(cls=Command, example="batchjobs status batch_4c1f…")
@click.argument("job")
@click.option("--json", "as_json", is_flag=True, help="Print the API's batch object.")
def status(job: str, as_json: bool) -> None:
    """Show how far a job is, and where its results lie."""
    from batchjobs.cli.deployment import open_deployment
    from batchjobs.cli.render import job_table, print_json, print_table
    from batchjobs.cli.view import view_job

    with open_deployment() as deployment:
        view = view_job(deployment, job)
        if as_json:
            print_json(view.wire())
        else:
            from batchjobs.cli.delivery import locations

            print_table(job_table(view, location_of=locations(deployment, view.job)))
