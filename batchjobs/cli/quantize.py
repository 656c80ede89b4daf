"""`--quantize`, wherever a command loads a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from batchjobs.errors import UsageError

if TYPE_CHECKING:
    from batchjobs.client.base import Client

quantize_option = click.option(
    "--quantize",
    type=click.Choice(["int8"]),
    help="Compute with 8-bit weights: less memory; answers differ, and their fingerprint says so.",
)


def overrides(quantize: str | None) -> dict[str, object]:
    """What the option changes of the settings."""
    return {} if quantize is None else {"quantization": quantize}


def check_quantizing(client: Client, *, quantize: str | None, detach: bool) -> None:
    """Raises UsageError where the engine is another process's."""
    if quantize is not None and (detach or client.deployment is None):
        raise UsageError(
            "--quantize is for the engine of this process, and here another one runs the job:"
            " give it to that one, batchjobs worker --quantize int8."
        )
