"""`batchjobs evals simulate SUITE`."""

from __future__ import annotations

import click

from batchjobs.cli.command import Command


@click.command(cls=Command, example="batchjobs evals simulate suite.yaml")
@click.argument("suite", type=click.Path())
@click.option("--model", metavar="NAME", help="In place of the suite's.")
@click.option("--nights", type=click.IntRange(100, 1_000_000), default=10_000, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def simulate(suite: str, model: str | None, nights: int, as_json: bool) -> None:
    """Show how often a suite would alarm.

    With nothing changed, and with a drop of 1 to 10 points. Nights are drawn from how much the
    runs of the pinned baseline differ from one another, and judged as real ones are.
    """
    from dataclasses import asdict
    from pathlib import Path

    from batchjobs.cli.evals.place import open_place
    from batchjobs.cli.render import plain, print_json
    from batchjobs.errors import ConflictError
    from batchjobs.evals import history, pins
    from batchjobs.evals.judging import limits_of, simulation
    from batchjobs.evals.suite_file import read_suite

    file = read_suite(Path(suite))
    with open_place() as place, place.deployment.database.read() as session:
        wanted = model or next(iter(file.suite.models), None)
        chosen = pins.baseline_of_model(session, file.suite.suite, wanted)
        if not chosen:
            on = "" if wanted is None else f" on {wanted}"
            raise ConflictError(
                f"The suite {file.suite.suite} has no baseline{on} to tell its noise by: batchjobs"
                f" evals baseline {suite} --runs 5"
            )
        baseline = [history.scored_run(session, run, file.suite.deciding) for run in chosen]
    found = simulation(baseline, limits_of(file.suite), nights)
    if as_json:
        print_json(asdict(found))
        return
    for line in found.lines():
        click.echo(plain(line) if line else "")
