"""`batchjobs evals show RUN`."""

from __future__ import annotations

import click

from batchjobs.cli.command import Command


@click.command(cls=Command, example="batchjobs evals show run_4c1f… --items 5")
@click.argument("run")
@click.option("--metric", metavar="NAME", help="Instead of the deciding one.")
@click.option(
    "--items", type=click.IntRange(0), default=0, help="Show so many answers, the worst first."
)
@click.option("--json", "as_json", is_flag=True, help="Print the run, and answers, as JSON.")
def show(run: str, metric: str | None, items: int, as_json: bool) -> None:
    """Show a run: its scores, by tag, and what was not answered."""
    from batchjobs.cli.evals.place import open_place
    from batchjobs.cli.evals.texts import print_answer
    from batchjobs.cli.evals.words import fact_table, print_scores, run_facts, tag_rows
    from batchjobs.cli.render import columns, print_json, print_table
    from batchjobs.evals import history, runs
    from batchjobs.evals.wire import run_object

    with open_place() as place, place.deployment.database.read() as session:
        found = runs.get(session, run)
        name = runs.metric_of(found, metric)
        shown = (
            history.answers_page(
                session, place.deployment.store, found, limit=items, metric=name, wrong_first=True
            )
            if items
            else []
        )
    if as_json:
        print_json({**run_object(found), "answers": [dict(one.record) for one in shown]})
        return
    print_table(fact_table(run_facts(found)))
    print_scores(found)
    if found.scores and (by_tag := list(tag_rows(found.scores[name]))):
        print_table(columns("TAG", "SCORE", "", "SCORED", "NOT ANSWERED", rows=by_tag))
    for one in shown:
        print_answer(one, name)
