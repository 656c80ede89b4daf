"""`batchjobs db …`: the database."""

from __future__ import annotations

import click

from batchjobs.cli.command import Command, Group


@click.group(cls=Group)
def db() -> None:
    """The database: its tables."""


@db.command(cls=Command, example="batchjobs db upgrade")
def upgrade() -> None:
    """Bring the tables to what this version needs.

    Every other command does it too, and waits for the first that does; run by itself before
    the servers of a deployment start, it shows whether the database can be used.
    """
    from batchjobs.cli.deployment import say_that_it_is_here
    from batchjobs.db import REVISION, Database
    from batchjobs.deployment import make_home
    from batchjobs.settings import Settings

    settings = Settings.load()
    say_that_it_is_here(settings)
    database = Database.open(settings.database_address)
    if database.is_embedded:
        make_home(settings.home)
    try:
        is_changed = database.upgrade()
    finally:
        database.close()
    done = "now" if is_changed else "already"
    click.echo(f"The database {database.place} is {done} at revision {REVISION}.")
