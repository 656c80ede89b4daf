"""`batchjobs beat`."""

from __future__ import annotations

import click

from batchjobs.cli.command import Command
from batchjobs.cli.exits import Exit


@click.command(cls=Command, example="batchjobs beat")
def beat() -> Exit:
    """Look after jobs beside the workers.

    Validates new jobs, publishes ended ones, expires, rescues shards of dead workers, rings for
    waiting work, removes what nobody needs. Every `serve` does it too; with several, or when the
    API is to do nothing else, it is a process of its own. Ctrl-C or SIGTERM ends it.
    """
    from batchjobs.caretaker import Caretaker
    from batchjobs.cli.deployment import open_deployment
    from batchjobs.cli.logs import log_to_stderr
    from batchjobs.cli.running import stop_signal

    log_to_stderr()
    with open_deployment() as deployment:
        stop = stop_signal(deployment, advice="The next one goes on where it was.")
        click.echo("Looking after jobs. Ctrl-C ends it.")
        with stop.install(), Caretaker(deployment).running():
            while not stop.is_set:
                stop.wait(LOOK_SECONDS)
    click.echo("Stopped.")
    return Exit.DONE


LOOK_SECONDS = 3600.0
"""For a wait that a signal ends."""
