"""`batchjobs resume JOB`."""

from __future__ import annotations

import click

from batchjobs.cli.command import Command
from batchjobs.cli.delivery import Destinations
from batchjobs.cli.exits import Exit
from batchjobs.cli.quantize import check_quantizing, overrides, quantize_option


@click.command(cls=Command, example="batchjobs resume batch_4c1f… -o results.jsonl")
@click.argument("job")
@click.option("-o", "--output", metavar="OUT", help="Copy the results here (- is stdout).")
@click.option("--errors", metavar="ERR", help="Copy the lines that failed here.")
@quantize_option
@click.option("--json", "as_json", is_flag=True, help="Print the API's batch object at the end.")
def resume(
    job: str, output: str | None, errors: str | None, quantize: str | None, as_json: bool
) -> Exit:
    """Go on with a job that was interrupted or detached.

    Lines that are done are not run again. A job that has ended only gets its summary. The job of a
    server ($BATCHJOBS_URL) is run by its workers: it is watched to its end and delivered.
    """
    from batchjobs.cli.account import Account
    from batchjobs.cli.course import course_of
    from batchjobs.cli.deployment import open_client

    destinations = Destinations(output=output, errors=errors)
    destinations.check(as_json=as_json)
    with open_client(**overrides(quantize)) as client:
        check_quantizing(client, quantize=quantize, detach=False)
        return course_of(client, Account(client, destinations, as_json=as_json)).run(job)
