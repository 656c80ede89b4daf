"""`batchjobs evals run SUITE…`."""

from __future__ import annotations

import click

from batchjobs.cli.command import Command
from batchjobs.cli.exits import Exit


@click.command(cls=Command, example="batchjobs evals run suite.yaml --model nightly --wait")
@click.argument("suites", metavar="SUITE...", nargs=-1, required=True, type=click.Path())
@click.option(
    "--model",
    "models",
    metavar="NAME",
    multiple=True,
    help="In place of the suite's; several are run one by one.",
)
@click.option("--window", default="24h", show_default=True, help="Time for it, as of `submit`.")
@click.option("--priority", type=click.IntRange(-1000, 1000), default=0, help="As of `submit`.")
@click.option("--wait", is_flag=True, help="See it to its verdict, also on a server.")
@click.option("--detach", is_flag=True, help="Only enqueue it; `evals resume` or a worker runs it.")
@click.option("--json", "as_json", is_flag=True, help="Print the run as JSON at the end.")
def run(
    suites: tuple[str, ...],
    models: tuple[str, ...],
    window: str,
    priority: int,
    wait: bool,
    detach: bool,
    as_json: bool,
) -> Exit:
    """Run suites, score and judge their answers.

    Answers are compared with those of the pinned baseline. The run's id is printed first. Suites
    that are run together are judged together. A run that is worse is run once more before it is
    called so. Exit codes: 0 ok or better, 8 worse, 9 no verdict, 1 failed.

    It runs here. If $BATCHJOBS_URL names a server, that server's workers run it, and the command
    ends at once unless there is --wait.
    """
    from pathlib import Path

    from batchjobs.cli.course import check_waiting
    from batchjobs.cli.evals.course import Course, leave
    from batchjobs.cli.evals.place import open_place
    from batchjobs.cli.evals.words import conclude
    from batchjobs.cli.render import print_json
    from batchjobs.evals.starting import RunOrder, start_run
    from batchjobs.evals.suite_file import read_suite
    from batchjobs.evals.wire import run_object
    from batchjobs.ids import new_run_id

    check_waiting(wait=wait, detach=detach)
    files = [read_suite(Path(suite)) for suite in suites]
    with open_place() as place:
        course = Course(place, quiet=as_json)
        night = new_run_id()
        run_ids = []
        for file in files:
            for model in models or file.suite.models or (None,):
                order = RunOrder(
                    model=model, window=window, priority=priority, night=night, takes_on=True
                )
                run_ids.append(start_run(place, file, order, begun=course.say))
        stays = place.client.deployment is not None or wait
        if stays and not detach:
            return conclude(course.see_through(run_ids), as_json=as_json)
        if as_json:
            print_json([run_object(one) for one in leave(place, run_ids)])
        else:
            course.say(f"Waiting. Go on with: batchjobs evals resume {' '.join(run_ids)}")
    return Exit.DONE
