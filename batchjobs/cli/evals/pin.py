"""`batchjobs evals pin RUN…`."""

from __future__ import annotations

import click

from batchjobs.cli.command import Command


@click.command(cls=Command, example="batchjobs evals pin run_4c1f… run_77ab…")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
def pin(runs: tuple[str, ...]) -> None:
    """Make runs the baseline of their suite.

    They take the place of what it was. Later runs are measured against their average. Nothing but
    this command (and `evals baseline`) moves a baseline, so that a slow decline cannot pass night
    by night.
    """
    from batchjobs.cli.evals.place import open_place
    from batchjobs.evals import pins

    with open_place() as place:
        suite = place.deployment.database.transact(
            lambda session: pins.pin(session, place.deployment.clock, runs)
        )
    count = len(set(runs))
    click.echo(f"The baseline of {suite} is now {count} run{'' if count == 1 else 's'}.")
    if count < 3:
        click.echo("Several runs make a steadier one: batchjobs evals baseline SUITE.yaml --runs 5")
