"""`batchjobs retry JOB`."""

from __future__ import annotations

import click

from batchjobs.cli.command import Command
from batchjobs.cli.delivery import Destinations
from batchjobs.cli.exits import Exit
from batchjobs.cli.quantize import check_quantizing, overrides, quantize_option


@click.command(cls=Command, example="batchjobs retry batch_4c1f… -o retried.jsonl")
@click.argument("job")
@click.option("-o", "--output", metavar="OUT", help="Copy the results here (- is stdout).")
@click.option("--errors", metavar="ERR", help="Copy the lines that failed again here.")
@click.option("--wait", is_flag=True, help="See it to its end, also on a server.")
@click.option("--detach", is_flag=True, help="Only enqueue it; `resume` or `worker` runs it.")
@quantize_option
@click.option("--json", "as_json", is_flag=True, help="Print the API's batch object at the end.")
def retry(
    job: str,
    output: str | None,
    errors: str | None,
    wait: bool,
    detach: bool,
    quantize: str | None,
    as_json: bool,
) -> Exit:
    """Run the lines of an ended job that have no answer, as a new job.

    Those are the lines of its error file: failed, expired or cancelled. The new job's id is printed
    first; what follows is as with `submit`.
    """
    from batchjobs.cli.course import begin, check_waiting
    from batchjobs.cli.deployment import open_client

    destinations = Destinations(output=output, errors=errors)
    destinations.check(as_json=as_json)
    check_waiting(wait=wait, detach=detach)
    with open_client(**overrides(quantize)) as client:
        check_quantizing(client, quantize=quantize, detach=detach)
        batch = client.retry(job)
        return begin(client, batch, destinations, wait=wait, detach=detach, as_json=as_json)
