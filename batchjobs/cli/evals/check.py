"""`batchjobs evals check SUITE`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from batchjobs.cli.command import Command

if TYPE_CHECKING:
    from batchjobs.evals.estimate import Estimate
    from batchjobs.evals.rendering import PlannedLine
    from batchjobs.evals.suite import Suite


@click.command(cls=Command, example="batchjobs evals check suite.yaml --show 2")
@click.argument("suite", type=click.Path())
@click.option("--model", metavar="NAME", help="In place of the suite's.")
@click.option(
    "--show",
    "shown",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="How many of the first requests to show.",
)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def check(suite: str, model: str | None, shown: int, as_json: bool) -> None:
    """Check a suite, and say what a run would take.

    All its requests are rendered, and the first shown. What is wrong is told with its line;
    nothing runs. Ends with 4 for a suite that cannot be run.
    """
    from pathlib import Path

    from batchjobs.cli.evals.place import open_place
    from batchjobs.cli.render import print_json
    from batchjobs.evals.estimate import PROBED_JOBS, estimate
    from batchjobs.evals.material import gather
    from batchjobs.evals.starting import choose_model
    from batchjobs.evals.suite_file import read_suite

    file = read_suite(Path(suite))
    name = choose_model(file.suite, model or next(iter(file.suite.models), "MODEL"))
    first: list[PlannedLine] = []

    def noting(line: PlannedLine) -> PlannedLine:
        if line.sample == 0 and len(first) < shown:
            first.append(line)
        return line

    with open_place() as place, gather(file, place.deployment.settings) as material:
        jobs = place.client.page(limit=PROBED_JOBS).batches
        with place.deployment.database.read() as session:
            lines = map(noting, material.lines(name))
            cost = estimate(session, file.suite, name, lines, jobs)
        if as_json:
            print_json(_object(file.suite, name, material.sha256, first, cost))
            return
        for line in first:
            _print_request(line)
        for sentence in _sentences(file.suite, name, material.sha256, cost):
            click.echo(sentence)


def _print_request(line: PlannedLine) -> None:
    click.secho(f"── item {line.item.id} ", bold=True, nl=False)
    click.echo(f"({', '.join(line.item.tags)})" if line.item.tags else "")
    if isinstance(line.prompt, str):
        click.echo(line.prompt)
    else:
        for message in line.prompt:
            click.secho(f"[{message['role']}]", dim=True)
            click.echo(message["content"])
    for choice in line.fields.get("_choices", ()):
        click.echo(f"  choice: {choice}")
    settings = {
        name: value for name, value in line.body.items() if name not in ("messages", "prompt")
    }
    click.secho(f"{settings}", dim=True)


def _sentences(suite: Suite, model: str, sha256: str, cost: Estimate) -> list[str]:
    metrics = ", ".join(suite.metrics)
    about = "" if cost.is_counted else "about "
    most = "" if cost.is_counted or suite.request.has_choices else "at most "
    by = "as a run of it took" if cost.is_counted else "by the length of the texts"
    found = [
        f"{suite.suite}: {cost.items:,} items, {cost.requests:,} requests to {model};"
        f" metrics: {metrics} ({suite.deciding} decides)",
        f"dataset sha256: {sha256}"
        + ("" if suite.dataset.sha256 else " (write it into `dataset.sha256` to hold it fixed)"),
        f"tokens: {about}{cost.prompt_tokens:,} in, {most}{cost.completion_tokens:,} out, {by}",
    ]
    if cost.seconds is None:
        found.append("time: not known, as no job of this model has ended yet")
    else:
        most = "" if cost.is_counted or suite.request.has_choices else " at most"
        found.append(
            f"time:{most} {_duration(cost.seconds)}, at the {cost.tokens_per_second:,.0f} tokens a"
            " second that jobs of this model took"
        )
    return found


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:,.0f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 5400 else f"{seconds / 3600:,.1f} h"


def _object(
    suite: Suite, model: str, sha256: str, first: list[PlannedLine], cost: Estimate
) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "suite": suite.suite,
        "model": model,
        "metrics": list(suite.metrics),
        "metric": suite.deciding,
        "dataset_sha256": sha256,
        "estimate": {**asdict(cost), "seconds": cost.seconds},
        "requests": [
            {"item": line.item.id, "tags": line.item.tags, "body": dict(line.body)}
            for line in first
        ],
    }
