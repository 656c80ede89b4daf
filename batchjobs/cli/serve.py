"""`batchjobs serve`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from batchjobs.cli.command import Command

F = TypeVar("F", bound=Callable[..., object])

_LISTENING = (
    click.option(
        "--host", default="127.0.0.1", show_default=True, help="The address to listen on."
    ),
    click.option(
        "--port",
        type=click.IntRange(0, 65535),
        default=8000,
        show_default=True,
        help="The port to listen on; 0 takes a free one.",
    ),
    click.option(
        "--insecure-open",
        is_flag=True,
        help="Listen on an address that others reach, without API keys.",
    ),
)


def listening_options(function: F) -> F:
    """Where the API listens: `host`, `port` and `insecure_open`."""
    for option in reversed(_LISTENING):
        function = option(function)
    return function


@click.command(cls=Command, example="batchjobs serve --port 8000")
@listening_options
def serve(host: str, port: int, insecure_open: bool) -> None:
    """Serve the OpenAI-compatible HTTP API.

    The URL is printed first, alone. Jobs are validated, expired and published here; their lines
    are answered by `batchjobs worker`. Ctrl-C or SIGTERM ends it.
    """
    from batchjobs.api.server import serve
    from batchjobs.cli.deployment import open_deployment
    from batchjobs.cli.logs import log_to_stderr

    log_to_stderr()
    with open_deployment() as deployment:
        serve(
            deployment,
            host=host,
            port=port,
            insecure_open=insecure_open,
            on_listening=click.echo,
        )
