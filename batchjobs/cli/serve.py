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
        "--require-keys",
        is_flag=True,
        help="Ask for API keys on this machine's own address too, as behind a proxy.",
    ),
    click.option(
        "--insecure-open",
        is_flag=True,
        help="Ask for no API keys on an address that others reach.",
    ),
)

_NO_KEYS = (
    "Every request needs an API key, but there is none yet; create one with:"
    " batchjobs keys create NAME"
)


def listening_options(function: F) -> F:
    """Where the API listens, and to whom: `host`, `port`, `require_keys` and `insecure_open`."""
    for option in reversed(_LISTENING):
        function = option(function)
    return function


def check_listening(*, require_keys: bool, insecure_open: bool) -> None:
    """Raises UsageError."""
    from batchjobs.errors import UsageError

    if require_keys and insecure_open:
        raise UsageError("--require-keys and --insecure-open cannot both be meant; leave one out.")


@click.command(cls=Command, example="batchjobs serve --port 8000")
@listening_options
def serve(host: str, port: int, require_keys: bool, insecure_open: bool) -> None:
    """Serve the OpenAI-compatible HTTP API.

    The URL is printed first, alone. Jobs are validated, expired and published here; their lines
    are answered by `batchjobs worker`. Ctrl-C or SIGTERM ends it.

    On an address that others reach, every request needs an API key (`batchjobs keys create`).
    """
    from batchjobs import api_keys
    from batchjobs.api.server import needs_keys, serve
    from batchjobs.cli.deployment import open_deployment
    from batchjobs.cli.logs import log_to_stderr

    check_listening(require_keys=require_keys, insecure_open=insecure_open)
    log_to_stderr()
    needed = needs_keys(host, require_keys=require_keys, insecure_open=insecure_open)
    with open_deployment() as deployment:
        with deployment.database.read() as session:
            is_locked_out = needed and not api_keys.exist(session)
        if is_locked_out:
            click.echo(_NO_KEYS, err=True)
        serve(
            deployment,
            host=host,
            port=port,
            require_keys=needed,
            on_listening=click.echo,
        )
