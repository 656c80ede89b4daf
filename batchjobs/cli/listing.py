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
    from batchjobs import wire
    from batchjobs.cli.deployment import open_deployment
    from batchjobs.cli.render import columns, line_counts, moment, plain, print_json, print_table
    from batchjobs.cli.view import view_page

    with open_deployment() as deployment:
        views, has_more = view_page(deployment, limit=limit, after=after)
        if as_json:
            print_json(wire.list_page([view.wire() for view in views], has_more=has_more))
            return
    rows = [
        (
            view.job.id,
            str(view.job.status),
            line_counts(view),
            ", ".join(plain(name) for name in view.job.models or ()),
            moment(view.job.created_at),
        )
        for view in views
    ]
    if not rows:
        click.echo("No jobs yet. Start one with: batchjobs submit FILE.jsonl")
        return
    print_table(columns("JOB", "STATUS", "REQUESTS", "MODELS", "CREATED", rows=rows))
    if has_more:
        click.echo(f"More: batchjobs list --after {views[-1].job.id}")
