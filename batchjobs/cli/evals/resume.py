"""`batchjobs evals resume RUN…`."""

from __future__ import annotations

import click

from batchjobs.cli.command import Command
from batchjobs.cli.exits import Exit


@click.command(cls=Command, example="batchjobs evals resume run_4c1f…")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print the run as JSON at the end.")
def resume(runs: tuple[str, ...], as_json: bool) -> Exit:
    """Go on with interrupted or detached runs.

    To their verdicts. What is answered is not asked again. Of runs that have ended it prints how.
    """
    from batchjobs.cli.evals.course import Course
    from batchjobs.cli.evals.place import open_place
    from batchjobs.cli.evals.words import conclude

    with open_place() as place:
        return conclude(Course(place, quiet=as_json).see_through(runs), as_json=as_json)
