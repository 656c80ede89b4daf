"""`batchjobs evals rescore RUN…`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from batchjobs.cli.command import Command
from batchjobs.cli.exits import Exit

if TYPE_CHECKING:
    from batchjobs.cli.evals.course import Course
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
        pinned = pinned_beside(place, runs)
        baselines = pinned if with_baseline else []
        # All are begun before one is pinned: a refusal leaves the baseline as it was.
        again = {
            run: rescoring.begin(run)
            for run in dict.fromkeys([*(run for ids in baselines for run in ids), *runs])
        }
        for old, new in again.items():
            course.say(f"{new} scores {old} again")
        for ids in baselines:
            _pin_again(place, course, [again[run] for run in ids])
        ended = course.see_through([again[run] for run in dict.fromkeys(runs)])
        if not with_baseline and any(run in ids for ids in pinned for run in runs):
            course.say("The baseline is as it was; --baseline pins the new runs in its place.")
        return conclude(ended, as_json=as_json)


def _pin_again(place: Workplace, course: Course, run_ids: list[str]) -> None:
    from batchjobs.cli.evals.words import baseline_words
    from batchjobs.evals import pins

    course.see_through(run_ids)
    suite, model = place.deployment.database.transact(
        partial(pins.pin, clock=place.deployment.clock, run_ids=run_ids)
    )
    course.say(baseline_words(suite, model, len(run_ids)))
