"""`batchjobs evals list`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from batchjobs.cli.command import Command

if TYPE_CHECKING:
    from batchjobs.evals.tables import EvalRun

MAX_PAGE = 1000


@click.command("list", cls=Command, example="batchjobs evals list --suite arithmetic")
@click.option("--suite", metavar="NAME", help="Only runs of this suite.")
@click.option("--model", metavar="NAME", help="Only runs of this model.")
@click.option("--limit", type=click.IntRange(1, MAX_PAGE), default=20, show_default=True)
@click.option("--after", metavar="RUN", help="Go on behind this run.")
@click.option("--json", "as_json", is_flag=True, help="Print the runs as JSON.")
def list_runs(
    suite: str | None, model: str | None, limit: int, after: str | None, as_json: bool
) -> None:
    """List runs, the newest first. `pinned` marks those of the baseline."""
    from batchjobs.cli.evals.place import open_place
    from batchjobs.cli.render import columns, moment, plain, print_json, print_table
    from batchjobs.evals import pins, runs
    from batchjobs.evals.tally import shown_score
    from batchjobs.evals.wire import run_object

    with open_place() as place, place.deployment.database.read() as session:
        found, has_more = runs.page(session, limit=limit, after=after, suite=suite, model=model)
        baseline = {
            one.id for name in {run.suite for run in found} for one in pins.pinned(session, name)
        }
    if as_json:
        print_json([{**run_object(run), "is_pinned": run.id in baseline} for run in found])
        return
    if not found:
        click.echo("No runs yet. Start one with: batchjobs evals run SUITE.yaml")
        return
    rows = [
        (
            run.id,
            plain(run.suite),
            plain(run.model),
            shown_score((run.scores or {}).get(run.metric, {}).get("mean")),
            _verdict(run),
            _mark(run, is_pinned=run.id in baseline),
            moment(run.created_at.timestamp()),
        )
        for run in found
    ]
    print_table(columns("RUN", "SUITE", "MODEL", "SCORE", "VERDICT", "", "CREATED", rows=rows))
    if has_more:
        click.echo(f"More: batchjobs evals list --after {found[-1].id}")


def _verdict(run: EvalRun) -> str:
    """Or what a run is for that is not judged, or how far it is."""
    from batchjobs.evals.states import Purpose

    is_judged = run.purpose == Purpose.RUN
    return run.word or str(run.state if is_judged or run.scores is None else run.purpose)


def _mark(run: EvalRun, *, is_pinned: bool) -> str:
    again = "" if run.rescores is None else "scored again"
    return ", ".join(filter(None, ("pinned" if is_pinned else "", again)))
