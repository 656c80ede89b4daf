"""`batchjobs evals compare A B`."""

from __future__ import annotations

import click

from batchjobs.cli.command import Command


@click.command(cls=Command, example="batchjobs evals compare run_4c1f… run_77ab… --tag kind=add")
@click.argument("before")
@click.argument("after")
@click.option("--metric", metavar="NAME", help="Instead of the deciding one.")
@click.option("--tag", metavar="TAG", help="Only items with this tag.")
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    help="How many of the items that differ to show with their answers.",
)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def compare(
    before: str, after: str, metric: str | None, tag: str | None, limit: int, as_json: bool
) -> None:
    """Show what differs between two runs of a suite.

    Item by item: what broke, what is fixed, with both answers. The first is the yardstick. It says
    what a verdict would, if there were no other run.
    """
    from batchjobs.cli.evals.place import open_place
    from batchjobs.cli.evals.texts import print_flip
    from batchjobs.cli.render import columns, plain, print_json, print_table
    from batchjobs.evals import runs
    from batchjobs.evals.comparing import compare_runs
    from batchjobs.evals.tally import shown_score

    with open_place() as place:
        with place.deployment.database.read() as session:
            old, new = runs.get(session, before), runs.get(session, after)
        found = compare_runs(place.deployment, old, new, metric=metric, tag=tag, texts=limit)
    if as_json:
        print_json(found.wire())
        return
    click.echo(f"{plain(new.suite)}, {found.metric}: {new.id} measured against {old.id}")
    click.echo(plain(found.verdict["sentence"]))
    rows = [
        (
            plain(row["tag"] or "all"),
            shown_score(row["baseline"]),
            shown_score(row["score"]),
            f"{row['effect']:+.4f}",
            f"{row['broken']:,}",
            f"{row['fixed']:,}",
            f"{row['items']:,}",
        )
        for row in found.rows
    ]
    if rows:
        print_table(
            columns("TAG", "BEFORE", "AFTER", "CHANGE", "BROKEN", "FIXED", "ITEMS", rows=rows)
        )
    for flip, was, now in found.texts:
        print_flip(flip, was, now, found.metric)
    if len(found.flips) > len(found.texts):
        click.echo(
            f"\n… and {len(found.flips) - len(found.texts):,} more items that differ: --limit N"
        )
