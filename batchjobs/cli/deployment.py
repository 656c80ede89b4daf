"""What a command works on, as the environment says. Imports are inside: they take half a second."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from batchjobs.client.base import Client
    from batchjobs.deployment import Deployment
    from batchjobs.settings import Settings


def open_client(**overrides: object) -> Client:
    """The server that BATCHJOBS_URL names, or without one the data here; with settings that the
    command line says.

    Raises UsageError for a wrong setting or a data directory that cannot be used.
    """
    from batchjobs.settings import Settings

    settings = Settings.load(**overrides)
    if settings.url:
        from batchjobs.client.remote import RemoteClient

        return RemoteClient(settings.url, settings.api_key or None)
    from batchjobs.client.embedded import EmbeddedClient
    from batchjobs.deployment import Deployment

    return EmbeddedClient(Deployment.open(settings))


def open_deployment(**overrides: object) -> Deployment:
    """The data here, for a command that has no other meaning; says so if a server is named.

    Raises UsageError for a wrong setting or a data directory that cannot be used.
    """
    from batchjobs.deployment import Deployment
    from batchjobs.settings import Settings

    settings = Settings.load(**overrides)
    say_that_it_is_here(settings)
    return Deployment.open(settings)


def open_own_deployment(command: str) -> Deployment:
    """The data here, for a command that one could mean for a server.

    Raises UsageError also if BATCHJOBS_URL is set: the command could change the wrong data.
    """
    from batchjobs.deployment import Deployment
    from batchjobs.errors import UsageError
    from batchjobs.settings import Settings

    settings = Settings.load()
    if settings.url:
        raise UsageError(
            f"`batchjobs {command}` works on the data of its own machine, and BATCHJOBS_URL is"
            f" {settings.url}: run it on that server's machine, or unset BATCHJOBS_URL."
        )
    return Deployment.open(settings)


def say_that_it_is_here(settings: Settings) -> None:
    import click

    if settings.url:
        click.echo(
            f"BATCHJOBS_URL ({settings.url}) is not used: this command works on the data here.",
            err=True,
        )
