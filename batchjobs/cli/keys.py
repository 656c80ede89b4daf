"""`batchjobs keys …`: who may use the HTTP API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from batchjobs.cli.command import Command, Group

if TYPE_CHECKING:
    from datetime import datetime

    from batchjobs.models import ApiKey


@click.group(cls=Group)
def keys() -> None:
    """API keys: who may use the HTTP API."""


@keys.command(cls=Command, example="batchjobs keys create laptop --tenant research")
@click.argument("name")
@click.option(
    "--tenant",
    default="default",
    show_default=True,
    help="Whose files and batches it opens; no tenant sees another's.",
)
def create(name: str, tenant: str) -> None:
    """Create a key and print its secret, once.

    NAME tells it from others in `batchjobs keys list`. On standard output there is nothing but
    the secret, which is not kept.
    """
    from batchjobs import api_keys
    from batchjobs.cli.deployment import open_deployment

    with open_deployment() as deployment, deployment.database.write() as session:
        made = api_keys.create(session, deployment.clock, name=name, tenant=tenant)
    click.echo(made.secret)
    click.echo(
        f"This is the key {made.key.id} of the tenant {tenant}. Keep it: it is not shown again.",
        err=True,
    )


@keys.command("list", cls=Command, example="batchjobs keys list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def list_keys(as_json: bool) -> None:
    """List the keys, revoked ones too."""
    from batchjobs import api_keys
    from batchjobs.cli.deployment import open_deployment
    from batchjobs.cli.render import columns, plain, print_json, print_table

    with open_deployment() as deployment, deployment.database.read() as session:
        found = api_keys.keys(session)
    if as_json:
        print_json([_wire(key) for key in found])
        return
    if not found:
        click.echo("No API keys yet. Create one with: batchjobs keys create NAME")
        return
    headers = ("ID", "NAME", "TENANT", "SECRET", "CREATED", "LAST USED", "REVOKED")
    rows = [
        (key.id, plain(key.name), plain(key.tenant), key.hint, *map(_moment, _moments(key)))
        for key in found
    ]
    print_table(columns(*headers, rows=rows))


@keys.command(cls=Command, example="batchjobs keys revoke key_4c1f…")
@click.argument("key_id", metavar="ID")
def revoke(key_id: str) -> None:
    """Revoke a key: from now on, requests with it are refused."""
    from batchjobs import api_keys
    from batchjobs.cli.deployment import open_deployment

    with open_deployment() as deployment, deployment.database.write() as session:
        key = api_keys.revoke(session, deployment.clock, key_id)
    click.echo(f"{key.id} is revoked since {_moment(key.revoked_at)}.")


def _wire(key: ApiKey) -> dict[str, Any]:
    created_at, last_used_at, revoked_at = map(_seconds, _moments(key))
    return {
        "id": key.id,
        "name": key.name,
        "tenant": key.tenant,
        "hint": key.hint,
        "created_at": created_at,
        "last_used_at": last_used_at,
        "revoked_at": revoked_at,
    }


def _moments(key: ApiKey) -> tuple[datetime, datetime | None, datetime | None]:
    return key.created_at, key.last_used_at, key.revoked_at


def _seconds(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp())


def _moment(when: datetime | None) -> str:
    from batchjobs.cli.render import moment

    return "–" if when is None else moment(when.timestamp())
