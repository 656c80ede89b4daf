"""Alembic's entry: brings the tables of `batchjobs.models` to a database."""

from __future__ import annotations

from typing import Any, Literal

from alembic import context
from sqlalchemy import Connection, Enum

from batchjobs import postgresql
from batchjobs.db import open_engine
from batchjobs.evals import tables as _eval_tables  # noqa: F401  # they are in the metadata
from batchjobs.models import Base, UserText, UserWord, UtcDateTime
from batchjobs.notifications import tables as _notification_tables  # noqa: F401
from batchjobs.schedules import tables as _schedule_tables  # noqa: F401
from batchjobs.settings import Settings


def render_item(kind: str, item: Any, _autogenerate: object) -> str | Literal[False]:
    """Keep migrations free of imports from the package, which goes on changing."""
    if kind == "type" and isinstance(item, UtcDateTime):
        return "sa.DateTime(timezone=True)"
    if kind == "type" and isinstance(item, UserWord):
        return f"sa.String(length={item.length})"
    if kind == "type" and isinstance(item, UserText):
        return "sa.Text()"
    if kind == "type" and isinstance(item, Enum):
        return f"sa.String(length={item.length})"
    return False


def migrate(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        postgresql.lock_for_migration(connection)
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_as_batch=True,
        render_item=render_item,
        transactional_ddl=True,
    )
    with context.begin_transaction():
        context.run_migrations()


if (given := context.config.attributes.get("connection")) is not None:
    migrate(given)
else:  # the `alembic` command in a checkout
    with open_engine(Settings.load().database_address).begin() as own:
        migrate(own)
