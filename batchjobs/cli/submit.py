"""`batchjobs submit FILE.jsonl`."""

from __future__ import annotations

import click

from batchjobs.cli.command import Command
from batchjobs.cli.delivery import Destinations
from batchjobs.cli.exits import Exit
from batchjobs.cli.quantize import check_quantizing, overrides, quantize_option


@click.command(
    cls=Command,
    example="batchjobs submit requests.jsonl -o results.jsonl --errors errors.jsonl",
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("-o", "--output", metavar="OUT", help="Copy the results here (- is stdout).")
@click.option("--errors", metavar="ERR", help="Copy the lines that failed here.")
@click.option("--model", metavar="NAME", help="Takes the place of every line's model.")
@click.option("--metadata", metavar="KEY=VALUE", multiple=True, help="A note on the job.")
@click.option(
    "--window",
    default="24h",
    show_default=True,
    help="Time to complete it in, in hours (48h) or days (7d).",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    default=0,
    show_default=True,
    help="Draws the answers of lines that have no seed; the same seed, the same answers.",
)
@click.option(
    "--priority",
    type=click.IntRange(-1000, 1000),
    default=0,
    show_default=True,
    help="Of jobs due in the same hour, the greater goes first.",
)
@click.option("--wait", is_flag=True, help="See it to its end, also on a server.")
@click.option("--detach", is_flag=True, help="Only enqueue it; `resume` or `worker` runs it.")
@click.option("--profile", is_flag=True, help="Show at the end where the engine's time went.")
@quantize_option
@click.option("--json", "as_json", is_flag=True, help="Print the API's batch object at the end.")
def submit(
    file: str,
    output: str | None,
    errors: str | None,
    model: str | None,
    metadata: tuple[str, ...],
    window: str,
    seed: int,
    priority: int,
    wait: bool,
    detach: bool,
    profile: bool,
    quantize: str | None,
    as_json: bool,
) -> Exit:
    """Run a JSONL file of requests, and write the results.

    FILE has one request a line, as for the OpenAI Batch API; - reads standard input. The job's id
    is printed first. Without -o the results stay in the store; the summary says where.

    It runs here. If $BATCHJOBS_URL names a server, that server's workers run it, and the command
    ends at once unless there is something to wait for: --wait, -o or --errors.
    """
    from batchjobs.cli.course import begin, check_profiling, check_waiting
    from batchjobs.cli.deployment import open_client
    from batchjobs.cli.source import find_endpoint, name_of, open_source
    from batchjobs.client.base import Order
    from batchjobs.settings import Settings

    destinations = Destinations(output=output, errors=errors)
    destinations.check(source=file, as_json=as_json)
    check_waiting(wait=wait, detach=detach)
    pairs = _pairs(metadata)
    with open_client(**overrides(quantize)) as client:
        here = client.deployment
        check_profiling(client, profile=profile, detach=detach)
        check_quantizing(client, quantize=quantize, detach=detach)
        settings = Settings.load() if here is None else here.settings
        max_bytes = None if here is None else settings.max_input_bytes
        with open_source(file, max_bytes=max_bytes) as stream:
            order = Order(
                filename=name_of(file),
                endpoint=find_endpoint(stream, settings.max_line_bytes),
                window=window,
                model=model,
                metadata=pairs,
                seed=seed,
                priority=priority,
            )
            batch = client.submit(stream, order)
        return begin(
            client,
            batch,
            destinations,
            wait=wait,
            detach=detach,
            as_json=as_json,
            profile=profile,
        )


def _pairs(words: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{word!r} is not KEY=VALUE.", param_hint="'--metadata'")
        pairs[key] = value
    return pairs
