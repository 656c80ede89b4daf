"""The database: transactions that either happened or did not, and a schema at its newest.

A transaction is `read`, which the database itself keeps from writing, or `write`, which on SQLite
takes the one write lock at its start: a transaction that reads first and writes later would fail
at once, whatever the timeout, when another has written in between.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock
from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.exc import DatabaseError as DriverError
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from batchjobs.errors import DatabaseError

REVISION = "0002"
"""The newest of `migrations/versions`; a test keeps the two equal."""
BUSY_TIMEOUT_MS = 30_000
"""How long a SQLite writer waits for another's transaction."""

_HERE = Path(__file__).parent
_INSTALLED_MIGRATIONS = _HERE / "migrations"
_CHECKOUT_MIGRATIONS = _HERE.parent / "migrations"


class Database:
    """Facts. One instance serves all threads of a process; it must not cross a fork."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._readers = engine.execution_options(read_only=True, postgresql_readonly=True)

    @classmethod
    def open(cls, url: str) -> Database:
        """Connects at the first transaction, not here."""
        engine = create_engine(url)
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", _configure_sqlite)
            event.listen(engine, "begin", _begin_sqlite)
        return cls(engine)

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A consistent view; what it loads stays usable afterwards. Raises DatabaseError."""
        with self._explained(), Session(self._readers, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Commits at the end, rolls back on an exception. Raises DatabaseError."""
        with (
            self._explained(),
            Session(self._engine, expire_on_commit=False) as session,
            session.begin(),
        ):
            yield session

    def upgrade(self) -> None:
        """Bring the schema to `REVISION`; processes that start together wait for the first.

        Raises DatabaseError, also for a schema that is newer than this program.
        """
        with self._explained():
            if self._revision() == REVISION:
                return
            with self._upgrade_lock():
                if self._revision() != REVISION:
                    self._migrate()

    def close(self) -> None:
        self._engine.dispose()

    def _revision(self) -> str | None:
        with self._readers.connect() as connection:
            if not inspect(connection).has_table("alembic_version"):
                return None
            revision: str | None = connection.scalar(
                text("SELECT version_num FROM alembic_version")
            )
            return revision

    def _upgrade_lock(self) -> FileLock:
        return FileLock(f"{self._place}.upgrade.lock", mode=0o600)

    def _migrate(self) -> None:
        # Only a process that has to migrate pays for the import.
        from alembic import command
        from alembic.config import Config
        from alembic.util import CommandError

        config = Config()
        config.set_main_option("script_location", str(migrations_dir()).replace("%", "%%"))
        self._use_wal()
        with self._engine.begin() as connection:
            config.attributes["connection"] = connection
            try:
                command.upgrade(config, REVISION)
            except CommandError as failed:
                raise DatabaseError(
                    f"The database {self._place} has a schema that this version of batchjobs"
                    f" does not know ({failed}); use the version that wrote it, or a newer one."
                ) from failed

    def _use_wal(self) -> None:
        """Lasts in the file; switching needs the file alone, so it is not done per connection."""
        connection = self._engine.raw_connection()
        try:
            connection.cursor().execute("PRAGMA journal_mode=WAL")
        finally:
            connection.close()

    @property
    def _place(self) -> str | None:
        return self._engine.url.database

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except DriverError as failed:
            if type(failed) not in (OperationalError, DriverError):
                raise
            raise DatabaseError(f"The database {self._place} failed: {failed.orig}.") from failed


def migrations_dir() -> Path:
    """Inside an installed package, or beside the package in a checkout."""
    return _INSTALLED_MIGRATIONS if _INSTALLED_MIGRATIONS.is_dir() else _CHECKOUT_MIGRATIONS


def _configure_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # the driver's own BEGIN is always a deferred one
    for pragma in (
        f"busy_timeout={BUSY_TIMEOUT_MS}",
        "foreign_keys=ON",
        "synchronous=FULL",  # a commit survives a power loss
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    read_only = connection.get_execution_options().get("read_only", False)
    connection.exec_driver_sql(f"PRAGMA query_only={'ON' if read_only else 'OFF'}")
    connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")
