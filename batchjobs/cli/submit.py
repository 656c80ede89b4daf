"""`batchjobs submit FILE.jsonl`."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from batchjobs.cli.command import Command
from batchjobs.cli.delivery import STREAM, Destinations
from batchjobs.cli.exits import Exit

if TYPE_CHECKING:
    from batchjobs.deployment import Deployment
    from batchjobs.models import File


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What a person asks for. `path` is `-` for standard input."""

    path: str
    model: str | None
    metadata: dict[str, str]
    window: str
    seed: int


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
@click.option("--detach", is_flag=True, help="Only enqueue it; `resume` or `worker` runs it.")
@click.option("--json", "as_json", is_flag=True, help="Print the API's batch object at the end.")
def submit(
    file: str,
    output: str | None,
    errors: str | None,
    model: str | None,
    metadata: tuple[str, ...],
    window: str,
    seed: int,
    detach: bool,
    as_json: bool,
) -> Exit:
    """Run a JSONL file of requests here, and write the results.

    FILE has one request a line, as for the OpenAI Batch API; - reads standard input. The job's id
    is printed first. Without -o the results stay in the store; the summary says where.
    """
    from batchjobs.cli.deployment import open_deployment
    from batchjobs.cli.running import Running

    destinations = Destinations(output=output, errors=errors)
    destinations.check(source=file, as_json=as_json)
    submission = Submission(
        path=file, model=model, metadata=_pairs(metadata), window=window, seed=seed
    )
    with open_deployment() as deployment:
        job_id = create_job(deployment, submission)
        running = Running(deployment, job_id, destinations=destinations, as_json=as_json)
        running.announce()
        return running.enqueue() if detach else running.run()


def create_job(deployment: Deployment, submission: Submission) -> str:
    """Store the file and create its job, which is still to be validated. The job's id.

    Raises:
        NotFoundError: no such model.
        InvalidRequestError: the window or the metadata is wrong, or the file too large.
    """
    from batchjobs import catalogue
    from batchjobs.queue import jobs

    if submission.model is not None:
        with deployment.database.read() as session:
            catalogue.resolve(session, submission.model)
    file = _store(deployment, submission.path)
    endpoint = _endpoint_of(deployment, file)
    with deployment.database.write() as session:
        job = jobs.create(
            session,
            deployment.clock,
            input_file_id=file.id,
            endpoint=endpoint,
            completion_window=submission.window,
            max_window_hours=deployment.settings.max_completion_window_hours,
            model_override=submission.model,
            metadata=submission.metadata or None,
            seed=submission.seed,
        )
        return job.id


def _store(deployment: Deployment, path: str) -> File:
    from batchjobs.files import add_file
    from batchjobs.intake import INPUT_PURPOSE

    with ExitStack() as stack:
        stream: BinaryIO = sys.stdin.buffer
        if path != STREAM:
            stream = stack.enter_context(Path(path).open("rb"))
        return add_file(
            deployment,
            stream,
            filename="stdin" if path == STREAM else Path(path).name,
            purpose=INPUT_PURPOSE,
            max_bytes=deployment.settings.max_input_bytes,
        )


def _endpoint_of(deployment: Deployment, file: File) -> str:
    """The first endpoint of ours that a line names; intake reports the lines that differ.

    If there is none, the first word in its place, or else the most usual endpoint: intake then
    says of the file or of every line what is wrong.
    """
    from batchjobs.endpoints import ENDPOINTS
    from batchjobs.errors import InvalidRequestError
    from batchjobs.files import open_file
    from batchjobs.jsonl import parse_object, read_lines

    first = None
    with open_file(deployment.store, file) as stream:
        for line in read_lines(stream, deployment.settings.max_line_bytes):
            try:
                url = parse_object(line.data or b"").get("url")
            except InvalidRequestError:
                continue
            if isinstance(url, str):
                if url in ENDPOINTS:
                    return url
                first = first or url
    return first or next(iter(ENDPOINTS))


def _pairs(words: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{word!r} is not KEY=VALUE.", param_hint="'--metadata'")
        pairs[key] = value
    return pairs
