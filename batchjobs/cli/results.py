"""`batchjobs results JOB`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from batchjobs.cli.command import Command
from batchjobs.cli.delivery import Destinations
from batchjobs.cli.exits import Exit

if TYPE_CHECKING:
    from batchjobs.cli.view import JobView
    from batchjobs.deployment import Deployment

SHOWN_ANSWERS = 20
_ANSWER_CHARS = 200


@click.command(
    cls=Command, example="batchjobs results batch_4c1f… -o results.jsonl --errors errors.jsonl"
)
@click.argument("job")
@click.option("-o", "--output", metavar="OUT", help="Copy the results here (- is stdout).")
@click.option("--errors", metavar="ERR", help="Copy the lines that failed here (- is stdout).")
@click.option("--json", "as_json", is_flag=True, help="Print the API's batch object.")
def results(job: str, output: str | None, errors: str | None, as_json: bool) -> Exit:
    """Copy a job's results, or show the first of them.

    Ends with 1 while the job is not finished. A file that no line ended in does not exist: every
    line failed, or none did.
    """
    from batchjobs.cli.delivery import deliver
    from batchjobs.cli.deployment import open_deployment
    from batchjobs.cli.render import print_json
    from batchjobs.cli.view import view_job

    destinations = Destinations(output=output, errors=errors)
    destinations.check(as_json=as_json)
    with open_deployment() as deployment:
        view = view_job(deployment, job)
        unfinished = why_no_results(view)
        said = [] if unfinished else deliver(deployment, view.job, destinations)
        if as_json:
            print_json(view.wire())
        elif not (unfinished or output or errors):
            show_answers(deployment, view)
    for sentence in [unfinished] if unfinished else said:
        click.echo(sentence, err=True)
    return Exit.ERROR if unfinished else Exit.DONE


def why_no_results(view: JobView) -> str | None:
    """A sentence on a job that has no result files, nor will have without more being done."""
    from batchjobs.cli.render import line_counts
    from batchjobs.states import JobState

    job = view.job
    if job.status == JobState.FAILED:
        return f"Error: {job.id} failed validation; nothing ran. See: batchjobs status {job.id}"
    if not view.is_terminal:
        return (
            f"Error: {job.id} is not finished: it is {job.status}, {line_counts(view)}."
            f" Wait with: batchjobs watch {job.id}"
        )
    return None


def show_answers(deployment: Deployment, view: JobView) -> None:
    """A table of the first lines' answers."""
    from batchjobs.cli.answers import first_answers
    from batchjobs.cli.render import columns, plain, print_table

    shown = first_answers(deployment, view.job, SHOWN_ANSWERS)
    rows = [
        (plain(line.custom_id), line.status, plain(line.text, limit=_ANSWER_CHARS))
        for line in shown
    ]
    print_table(columns("CUSTOM_ID", "STATUS", "ANSWER", rows=rows))
    if view.job.total_lines > len(shown):
        more = view.job.total_lines - len(shown)
        click.echo(f"… and {more:,} more: batchjobs results {view.job.id} -o FILE")
