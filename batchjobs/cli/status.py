"""`batchjobs status JOB`."""

from __future__ import annotations

import click

from batchjobs.cli.command import Command


@click.command(cls=Command, example="batchjobs status batch_4c1f…")
@click.argument("job")
@click.option("--json", "as_json", is_flag=True, help="Print the API's batch object.")
def status(job: str, as_json: bool) -> None:
    """Show how far a job is, and where its results lie."""
    from batchjobs.cli.delivery import locations
    from batchjobs.cli.deployment import open_client
    from batchjobs.cli.render import job_table, print_json, print_table

    with open_client() as client:
        batch = client.batch(job)
        if as_json:
            print_json(batch.wire)
        else:
            print_table(job_table(batch, location_of=locations(client, batch)))
