"""`batchjobs evals baseline SUITE`."""

from __future__ import annotations

from functools import partial

import click

from batchjobs.cli.command import Command
from batchjobs.cli.exits import Exit


@click.command(cls=Command, example="batchjobs evals baseline suite.yaml --runs 5")
@click.argument("suite", type=click.Path())
@click.option("--runs", "count", type=click.IntRange(1, 50), default=5, show_default=True)
@click.option(
    "--model",
    "models",
    metavar="NAME",
    multiple=True,
    help="In place of the suite's; several have a baseline each.",
)
@click.option("--window", default="24h", show_default=True, help="Time for it, as of `submit`.")
@click.option("--no-pin", is_flag=True, help="Only run; `evals pin` makes them the baseline.")
def baseline(suite: str, count: int, models: tuple[str, ...], window: str, no_pin: bool) -> Exit:
    """Run a suite several times, as its baseline on its model.

    How much they differ is the suite's noise with nothing changed, which `evals simulate` uses. It
    waits for their end, also on a server.
    """
    from pathlib import Path

    from batchjobs.cli.evals.course import Course
    from batchjobs.cli.evals.place import open_place
    from batchjobs.cli.evals.words import baseline_words, print_run
    from batchjobs.evals import pins
    from batchjobs.evals.starting import RunOrder, start_run
    from batchjobs.evals.states import Purpose, RunState
    from batchjobs.evals.suite_file import read_suite

    file = read_suite(Path(suite))
    with open_place() as place:
        course = Course(place)
        sets: list[list[str]] = []
        for model in models or file.suite.models or (None,):
            order = RunOrder(model=model, window=window, purpose=Purpose.BASELINE, takes_on=True)
            sets.append([start_run(place, file, order, begun=course.say) for _ in range(count)])
        found = course.see_through([run_id for run_ids in sets for run_id in run_ids])
        for run in found:
            print_run(run)
        if any(run.state == RunState.FAILED for run in found):
            click.echo("Error: a run failed, so nothing is pinned.", err=True)
            return Exit.ERROR
        for run_ids in sets:
            if no_pin:
                click.echo(f"Pin them with: batchjobs evals pin {' '.join(run_ids)}")
                continue
            name, on = place.deployment.database.transact(
                partial(pins.pin, clock=place.deployment.clock, run_ids=run_ids)
            )
            click.echo(baseline_words(name, on, count))
    return Exit.DONE
