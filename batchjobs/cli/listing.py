"""`batchjobs list`."""

from __future__ import annotations

import click

from batchjobs.cli.command import Command

MAX_PAGE = 100


@click.command("list", cls=Command, example="batchjobs list --limit 5")
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_PAGE),
    default=20,
    show_default=True,
    help="How many jobs to show.",
)
@click.option("--after", metavar="JOB", help="Go on behind this job.")
@click.option("--json", "as_json", is_flag=True, help="Print one page as the API does.")
def list_jobs(limit: int, after: str | None, as_json: bool) -> None:
    """List jobs, the newest first."""
    from batchjobs.cli.deployment import open_client
    from batchjobs.cli.render import columns, line_counts, moment, plain, print_json, print_table

    with open_client() as client:
        page = client.page(limit=limit, after=after)
    if as_json:
        print_json(page.wire)
        return
    rows = [
        (
            plain(batch.id),
            plain(batch.status),
            line_counts(batch),
            ", ".join(plain(name) for name in batch.models),
            moment(batch.created_at),
        )
        for batch in page.batches
    ]
    if not rows:
        click.echo("No jobs yet. Start one with: batchjobs submit FILE.jsonl")
        return
    print_table(columns("JOB", "STATUS", "REQUESTS", "MODELS", "CREATED", rows=rows))
    if page.has_more:
        click.echo(f"More: batchjobs list --after {rows[-1][0]}")
