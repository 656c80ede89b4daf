"""PostgreSQL: the database of several hosts, through psycopg 3.

No statement, lock or silent connection holds a caller for ever: each has a time limit, which the
URL may change (`?options=-c%20statement_timeout%3D5min`, `?connect_timeout=3`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine
from sqlalchemy.exc import DBAPIError, OperationalError

DRIVER = "postgresql+psycopg"
SCHEMES = frozenset({"postgresql", "postgres", DRIVER})
READ_ONLY: dict[str, Any] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
"""Execution options of a transaction that sees one state and must not write."""

_CONNECTION = {
    "application_name": "batchjobs",
    "connect_timeout": "10",
    "keepalives": "1",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",  # ms that sent bytes may go unacknowledged
}
_SESSION = {
    "statement_timeout": "60s",
    "lock_timeout": "30s",
    "idle_in_transaction_session_timeout": "60s",
    "TimeZone": "UTC",
}
_MIGRATION = {"statement_timeout": "30min", "lock_timeout": "60s"}
_RECYCLE_SECONDS = 1800

_UNDONE = frozenset({"40001", "40P01"})
"""Serialization failure, deadlock: the server has rolled back and says so."""
_UNAVAILABLE = frozenset({"57P01", "57P02", "57P03", "53300"})
"""Shutting down, crashed, starting up, too many connections."""
_NO_PRIVILEGE = "42501"


def open_engine(url: URL) -> Engine:
    """Connections that have died in the pool are replaced before they are handed out."""
    own = {name: value for name, value in _CONNECTION.items() if name not in url.query}
    given = url.query.get("options", "")
    options = [f"-c {name}={value}" for name, value in _SESSION.items()]
    # The server takes the last of two values: what the URL says.
    options.extend([given] if isinstance(given, str) else given)
    return create_engine(
        url.set(drivername=DRIVER),
        connect_args={**own, "options": " ".join(options).strip()},
        pool_pre_ping=True,
        pool_recycle=_RECYCLE_SECONDS,
        hide_parameters=True,
    )


def lock_for_migration(connection: Connection) -> None:
    """Until the transaction ends, other processes that come here wait."""
    for name, value in _MIGRATION.items():
        connection.exec_driver_sql(f"SET LOCAL {name} = '{value}'")
    hold_lock(connection, "migration")


def hold_lock(connection: Connection, name: str) -> None:
    """Until the transaction ends, other holders of this name wait."""
    connection.exec_driver_sql(
        "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"batchjobs.{name}",)
    )


@contextmanager
def alone(engine: Engine, name: str) -> Iterator[bool]:
    """Whether nobody else is in this context of this name; ends with its connection too."""
    key = (f"batchjobs.{name}",)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        locked = connection.exec_driver_sql(
            "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", key
        ).scalar_one()
        try:
            yield bool(locked)
        finally:
            if locked:
                _unlock(connection, key)


def was_undone(failed: DBAPIError) -> bool:
    """The server has rolled the transaction back, and it may be tried again."""
    return _sqlstate(failed) in _UNDONE


def was_lost(failed: DBAPIError) -> bool:
    """There is no connection, or none any more."""
    state = _sqlstate(failed)
    if state is None:
        return failed.connection_invalidated or isinstance(failed, OperationalError)
    return state in _UNAVAILABLE or state.startswith("08")


def lacks_privilege(failed: DBAPIError) -> bool:
    return _sqlstate(failed) == _NO_PRIVILEGE


def _unlock(connection: Connection, key: tuple[str]) -> None:
    try:
        connection.exec_driver_sql("SELECT pg_advisory_unlock(hashtextextended(%s, 0))", key)
    except DBAPIError:
        connection.invalidate()  # the lock goes with it


def _sqlstate(failed: DBAPIError) -> str | None:
    state: str | None = getattr(failed.orig, "sqlstate", None)
    return state
