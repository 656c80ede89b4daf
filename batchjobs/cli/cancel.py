"""`batchjobs cancel JOB`."""

from __future__ import annotations

import click

from batchjobs.cli.command import Command


@click.command(cls=Command, example="batchjobs cancel batch_4c1f…")
@click.argument("job")
@click.option("--json", "as_json", is_flag=True, help="Print the API's batch object.")
def cancel(job: str, as_json: bool) -> None:
    """Cancel a job. Finished lines are published, the others are listed as not run."""
    from batchjobs.cli.deployment import open_client
    from batchjobs.cli.render import line_counts, print_json

    with open_client() as client:
        batch = client.cancel(job)
    if as_json:
        print_json(batch.wire)
        return
    click.echo(f"{batch.status}: {line_counts(batch)}")
    if not batch.is_terminal:
        click.echo(f"Its worker stops at the next look. See: batchjobs watch {job}")
