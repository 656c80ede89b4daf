"""`batchjobs evals rescore RUN…`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from batchjobs.cli.command import Command
from batchjobs.cli.exits import Exit

if TYPE_CHECKING:
    from batchjobs.cli.evals.course import Course
    from batchjobs.evals.rescoring import Rescoring
    from batchjobs.evals.workplace import Workplace


@click.command(cls=Command, example="batchjobs evals rescore run_4c1f… --baseline")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option(
    "--suite", type=click.Path(), help="In place of the files that the runs were made by."
)
@click.option(
    "--baseline",
    "with_baseline",
    is_flag=True,
    help="First score the runs of the pinned baseline again, and pin these in their place.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the new runs as JSON at the end.")
def rescore(runs: tuple[str, ...], suite: str | None, with_baseline: bool, as_json: bool) -> Exit:
    """Score the answers of runs again, by the suite as it is now.

    For when a scorer or a right answer was wrong. No question is asked again (but a judge's that
    has changed). Each becomes a new run, and the old one stays. They do not compare with runs that
    were scored otherwise: have the baseline scored again too.
    """
    from pathlib import Path

    from batchjobs.cli.evals.course import Course
    from batchjobs.cli.evals.place import open_place
    from batchjobs.cli.evals.words import conclude
    from batchjobs.evals.rescoring import Rescoring, pinned_beside

    with open_place() as place:
        course = Course(place, quiet=as_json)
        rescoring = Rescoring(place, None if suite is None else Path(suite))
        baselines = pinned_beside(place, runs)
        again: dict[str, str] = {}
        if with_baseline:
            for pinned in baselines:
                again |= _rescore_baseline(place, course, rescoring, pinned)
        elif any(run in pinned for pinned in baselines for run in runs):
            course.say("Pinned runs stay pinned as they were; --baseline pins the new ones.")
        begun = []
        for run in dict.fromkeys(runs):
            if run not in again:
                again[run] = rescoring.begin(run)
                course.say(f"{again[run]} scores {run} again")
            begun.append(again[run])
        return conclude(course.see_through(begun), as_json=as_json)


def _rescore_baseline(
    place: Workplace, course: Course, rescoring: Rescoring, pinned: list[str]
) -> dict[str, str]:
    """New runs by the old ones, in whose place they are pinned."""
    from batchjobs.cli.evals.words import baseline_words
    from batchjobs.evals import pins

    again = {run: rescoring.begin(run) for run in pinned}
    new = list(again.values())
    course.see_through(new)
    suite, model = place.deployment.database.transact(
        partial(pins.pin, clock=place.deployment.clock, run_ids=new)
    )
    course.say(baseline_words(suite, model, len(new)))
    return again
