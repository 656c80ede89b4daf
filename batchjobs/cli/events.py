"""`batchjobs events …`: who is told of events, and whether it arrived."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from batchjobs.cli.command import Command, Group
from batchjobs.cli.exits import Exit

if TYPE_CHECKING:
    from batchjobs.notifications.tables import Delivery

SECRET_BYTES = 32


@click.group(cls=Group)
def events() -> None:
    """Who is told what has happened, and whether it arrived.

    By webhook, mail or a command, as the settings say: BATCHJOBS_WEBHOOK_URL, BATCHJOBS_SMTP_URL,
    BATCHJOBS_NOTIFY_COMMAND. `serve`, `beat` and `up` deliver.
    """


@events.command(cls=Command, example="batchjobs events secret")
def secret() -> None:
    """Print a new secret for BATCHJOBS_WEBHOOK_SECRET. It is not kept."""
    import base64
    import secrets

    from batchjobs.notifications.signing import PREFIX

    click.echo(PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode())


@events.command(cls=Command, example="batchjobs events test")
def test() -> Exit:
    """Send a test event on every channel now, and say how it went. It is not tried again."""
    from batchjobs.cli.deployment import open_own_deployment
    from batchjobs.errors import UsageError
    from batchjobs.notifications.office import try_channels

    with open_own_deployment("events") as deployment:
        found = try_channels(deployment)
    if not found:
        raise UsageError(
            "No channel is open: set BATCHJOBS_WEBHOOK_URL, BATCHJOBS_SMTP_URL or"
            " BATCHJOBS_NOTIFY_COMMAND."
        )
    for channel, error in found.items():
        click.echo(f"{channel}: {error or 'delivered'}")
    return Exit.ERROR if any(found.values()) else Exit.DONE


@events.command("list", cls=Command, example="batchjobs events list --failed")
@click.option("--failed", is_flag=True, help="Only those whose last attempt failed.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True)
def list_deliveries(failed: bool, limit: int) -> None:
    """List deliveries, the newest events first."""
    from batchjobs.cli.deployment import open_own_deployment
    from batchjobs.cli.render import columns, moment, plain, print_table
    from batchjobs.queue import events as queue

    with (
        open_own_deployment("events") as deployment,
        deployment.database.read() as session,
    ):
        found = queue.page(session, limit=limit, is_failed=failed)
    if not found:
        click.echo("No deliveries.")
        return
    rows = [
        (
            event.id,
            moment(event.created_at.timestamp()),
            event.type,
            plain(str(event.data.get("id", ""))),
            str(delivery.channel),
            _course(delivery),
        )
        for delivery, event in found
    ]
    print_table(columns("EVENT", "AT", "TYPE", "ABOUT", "CHANNEL", "DELIVERY", rows=rows))


@events.command("resend", cls=Command, example="batchjobs events resend evt_4c1f…")
@click.argument("event_id", metavar="EVENT")
def resend(event_id: str) -> None:
    """Deliver an event once more, under the same id."""
    from batchjobs.cli.deployment import open_own_deployment
    from batchjobs.queue import events as queue

    with (
        open_own_deployment("events") as deployment,
        deployment.database.write() as session,
    ):
        count = queue.send_again(session, deployment.clock, event_id)
    click.echo(f"{count} deliveries of {event_id} are due now.")


def _course(delivery: Delivery) -> str:
    from batchjobs.cli.render import moment, plain

    if delivery.delivered_at is not None:
        return f"delivered {moment(delivery.delivered_at.timestamp())}"
    tries = f"{delivery.attempts} attempts: {plain(delivery.error or '–')}"
    if delivery.given_up_at is not None:
        return f"given up after {tries}"
    assert delivery.due_at is not None
    due = moment(delivery.due_at.timestamp())
    return f"{tries}; next {due}" if delivery.attempts else f"due {due}"
