"""`batchjobs watch JOB`."""

from __future__ import annotations

import click

from batchjobs.cli.command import Command
from batchjobs.cli.exits import Exit


@click.command(cls=Command, example="batchjobs watch batch_4c1f…")
@click.argument("job")
@click.option("--json", "as_json", is_flag=True, help="Print the API's batch object at the end.")
def watch(job: str, as_json: bool) -> Exit:
    """Follow a job that another process runs.

    Ends when the job has ended, with the exit code that `submit` would end with.
    """
    from batchjobs.cli.account import exit_code
    from batchjobs.cli.delivery import Destinations
    from batchjobs.cli.deployment import open_client
    from batchjobs.cli.following import follow, watch_command
    from batchjobs.cli.render import print_json
    from batchjobs.cli.summary import summarize

    with open_client() as client:
        batch = follow(client, job, go_on=watch_command(job))
        if as_json:
            print_json(batch.wire)
            return exit_code(batch)
        for sentence in summarize(client, batch, Destinations(output=None, errors=None)):
            click.echo(sentence)
    return exit_code(batch)
