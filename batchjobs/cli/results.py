"""`batchjobs results JOB`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from batchjobs.cli.command import Command
from batchjobs.cli.delivery import Destinations
from batchjobs.cli.exits import Exit

if TYPE_CHECKING:
    from batchjobs.client.base import Client
    from batchjobs.client.batch import Batch

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
    from batchjobs.cli.deployment import open_client
    from batchjobs.cli.render import print_json

    destinations = Destinations(output=output, errors=errors)
    destinations.check(as_json=as_json)
    with open_client() as client:
        batch = client.batch(job)
        unfinished = why_no_results(batch)
        said = [] if unfinished else deliver(client, batch, destinations)
        if as_json:
            print_json(batch.wire)
        elif not (unfinished or output or errors):
            show_answers(client, batch)
    for sentence in [unfinished] if unfinished else said:
        click.echo(sentence, err=True)
    return Exit.ERROR if unfinished else Exit.DONE


def why_no_results(batch: Batch) -> str | None:
    """A sentence on a job that has no result files, nor will have without more being done."""
    from batchjobs.cli.render import line_counts
    from batchjobs.states import JobState

    if batch.status == JobState.FAILED:
        return f"Error: {batch.id} failed validation; nothing ran. See: batchjobs status {batch.id}"
    if not batch.is_terminal:
        return (
            f"Error: {batch.id} is not finished: it is {batch.status}, {line_counts(batch)}."
            f" Wait with: batchjobs watch {batch.id}"
        )
    return None


def show_answers(client: Client, batch: Batch) -> None:
    """A table of the first lines' answers."""
    from batchjobs.cli.answers import first_answers
    from batchjobs.cli.render import columns, plain, print_table

    shown = first_answers(client, batch, SHOWN_ANSWERS)
    rows = [
        (plain(line.custom_id), line.status, plain(line.text, limit=_ANSWER_CHARS))
        for line in shown
    ]
    print_table(columns("CUSTOM_ID", "STATUS", "ANSWER", rows=rows))
    if batch.total_lines > len(shown):
        more = batch.total_lines - len(shown)
        click.echo(f"… and {more:,} more: batchjobs results {batch.id} -o FILE")
