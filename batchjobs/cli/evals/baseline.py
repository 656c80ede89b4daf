"""`batchjobs evals baseline SUITE`."""

from __future__ import annotations

import click

from batchjobs.cli.command import Command
from batchjobs.cli.exits import Exit


@click.command(cls=Command, example="batchjobs evals baseline suite.yaml --runs 5")
@click.argument("suite", type=click.Path())
@click.option("--runs", "count", type=click.IntRange(1, 50), default=5, show_default=True)
@click.option("--model", metavar="NAME", help="In place of the suite's.")
@click.option("--window", default="24h", show_default=True, help="Time for it, as of `submit`.")
@click.option("--no-pin", is_flag=True, help="Only run; `evals pin` makes them the baseline.")
def baseline(suite: str, count: int, model: str | None, window: str, no_pin: bool) -> Exit:
    """Run a suite several times, as its baseline.

    How much they differ is the suite's noise with nothing changed, which `evals simulate` uses. It
    waits for their end, also on a server.
    """
    from pathlib import Path

    from batchjobs.cli.evals.course import Course
    from batchjobs.cli.evals.place import open_place
    from batchjobs.cli.evals.words import print_run
    from batchjobs.evals import pins
    from batchjobs.evals.starting import RunOrder, start_run
    from batchjobs.evals.states import Purpose, RunState
    from batchjobs.evals.suite_file import read_suite

    file = read_suite(Path(suite))
    order = RunOrder(model=model, window=window, purpose=Purpose.BASELINE)
    with open_place() as place:
        course = Course(place)
        run_ids = []
        for _ in range(count):
            run_ids.append(start_run(place, file, order))
            course.say(run_ids[-1])
        found = course.see_through(run_ids)
        for run in found:
            print_run(run)
        if any(run.state == RunState.FAILED for run in found):
            click.echo("Error: a run failed, so nothing is pinned.", err=True)
            return Exit.ERROR
        if no_pin:
            click.echo(f"Pin them with: batchjobs evals pin {' '.join(run_ids)}")
            return Exit.DONE
        name = place.deployment.database.transact(
            lambda session: pins.pin(session, place.deployment.clock, run_ids)
        )
    click.echo(f"The baseline of {name} is now these {count} runs.")
    return Exit.DONE
