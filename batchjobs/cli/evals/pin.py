"""`batchjobs evals pin RUN…` and `unpin RUN…`."""

from __future__ import annotations

import click

from batchjobs.cli.command import Command


@click.command(cls=Command, example="batchjobs evals pin run_4c1f… run_77ab…")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
def pin(runs: tuple[str, ...]) -> None:
    """Make runs the baseline of their suite on their model.

    They take the place of what it was; baselines on other models stay. Later runs are measured
    against their average. Nothing but this command, `unpin` and `evals baseline` moves a baseline,
    so that a slow decline cannot pass night by night.
    """
    from batchjobs.cli.evals.place import open_place
    from batchjobs.cli.evals.words import baseline_words
    from batchjobs.evals import pins

    with open_place() as place:
        suite, model = place.deployment.database.transact(
            lambda session: pins.pin(session, place.deployment.clock, runs)
        )
    count = len(set(runs))
    click.echo(baseline_words(suite, model, count))
    if count < 3:
        click.echo("Several runs make a steadier one: batchjobs evals baseline SUITE.yaml --runs 5")


@click.command(cls=Command, example="batchjobs evals unpin run_4c1f…")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
def unpin(runs: tuple[str, ...]) -> None:
    """Take runs out of their baseline.

    For a model that is no more, or a run that should not have been pinned. The runs stay.
    """
    from batchjobs.cli.evals.place import open_place
    from batchjobs.evals import pins

    with open_place() as place:
        place.deployment.database.transact(
            lambda session: pins.unpin(session, place.deployment.clock, runs)
        )
    count = len(set(runs))
    click.echo(f"{count} run{'' if count == 1 else 's'} taken out of the baseline.")
