"""The database: transactions that either happened or did not, and a schema at its newest.

A transaction is `read`, which the database itself keeps from writing, or `write`. On SQLite a
write takes the one write lock at its start: a transaction that reads first and writes later would
fail at once, whatever the timeout, when another has written in between. On PostgreSQL writers run
beside each other at READ COMMITTED, so that what is decided by a row is decided in the UPDATE.

What a short absence of a PostgreSQL server means:

| the connection is lost | then |
|---|---|
| before the transaction's first statement | it is opened again, for up to `RETRY_SECONDS` |
| within `transact`, also by a deadlock | the work is done again from its start |
| within `read` or `write` | DatabaseError; nothing has happened |
| while COMMIT is under way | DatabaseError; nobody knows whether it happened |
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TypeVar

from filelock import FileLock
from sqlalchemy import URL, Engine, inspect, make_url, text
from sqlalchemy.exc import ArgumentError, InternalError, OperationalError, ProgrammingError
from sqlalchemy.exc import DatabaseError as DriverError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from batchjobs import postgresql, sqlite
from batchjobs.errors import DatabaseError, UsageError

REVISION = "0013"
"""The newest of `migrations/versions`; a test keeps the two equal."""
RETRY_SECONDS = 15.0
"""How long a lost PostgreSQL server is waited for, and undone work tried again."""

_LONGEST_PAUSE_SECONDS = 2.0
_HERE = Path(__file__).parent
_INSTALLED_MIGRATIONS = _HERE / "migrations"
_CHECKOUT_MIGRATIONS = _HERE.parent / "migrations"

T = TypeVar("T")


class Database:
    """Facts. One instance serves all threads of a process; it must not cross a fork."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.is_embedded = engine.dialect.name == "sqlite"
        """A file, which only processes of this host can have open."""
        read_only = sqlite.READ_ONLY if self.is_embedded else postgresql.READ_ONLY
        self._readers = engine.execution_options(**read_only)

    @classmethod
    def open(cls, url: str) -> Database:
        """Connects at the first transaction, not here. Raises UsageError for a wrong URL."""
        return cls(open_engine(url))

    @property
    def place(self) -> str:
        """Where it is, in words for a person: without a password."""
        url = self._engine.url
        if self.is_embedded:
            return url.database or "in memory"
        return URL.create(
            "postgresql",
            username=url.username,
            host=url.host,
            port=url.port,
            database=url.database,
        ).render_as_string()

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A consistent view; what it loads stays usable afterwards. Raises DatabaseError."""
        with self._explained(), self._session(self._readers) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Commits at the end, rolls back on an exception. Raises DatabaseError."""
        with self._explained(), self._session(self._engine) as session:
            yield session
            session.commit()

    def transact(self, work: Callable[[Session], T]) -> T:
        """A `write` that is done again when the database has undone it. What `work` returns.

        `work` may be called several times and must have no effect but on its session.
        Raises DatabaseError when trying again does not help, or may do the work twice.
        """
        with self._explained():
            pauses = _pauses()
            while True:
                is_committing = False
                try:
                    with self._session(self._engine) as session:
                        result = work(session)
                        session.flush()
                        is_committing = True
                        session.commit()
                    return result
                except DriverError as failed:
                    pause = next(pauses, None)
                    if pause is None or not self._was_undone(failed, is_committing=is_committing):
                        raise
                time.sleep(pause)

    @contextmanager
    def alone(self, name: str) -> Iterator[bool]:
        """Whether no other process or thread is in this context of this name. It saves work, and
        decides nothing: a lost connection lets another in. Raises DatabaseError."""
        if self.is_embedded:
            with sqlite.alone(self.place, name) as is_alone:
                yield is_alone
            return
        with self._explained(), postgresql.alone(self._engine, name) as is_alone:
            yield is_alone

    def ping(self) -> None:
        """Ask once, and do not wait for a server that is away. Raises DatabaseError."""
        with self._explained(), self._readers.connect() as connection:
            connection.execute(text("SELECT count(*) FROM alembic_version"))

    def upgrade(self) -> bool:
        """Bring the schema to `REVISION`; processes that start together wait for the first.

        False if it was there. Raises DatabaseError, also for a schema that is newer than this
        program.
        """
        with self._explained(also=ProgrammingError):
            if self._revision() == REVISION:
                return False
            with self._upgrade_lock():
                if self._revision() == REVISION:
                    return False
                self._migrate()
                return True

    def close(self) -> None:
        self._engine.dispose()

    def _session(self, engine: Engine) -> Session:
        """In a transaction, if that needs a server: then waits for one that was lost."""
        pauses = _pauses()
        while True:
            session = Session(engine, expire_on_commit=False)
            if self.is_embedded:
                return session
            try:
                session.connection()
            except DriverError as failed:
                session.close()
                pause = next(pauses, None)
                if pause is None or not postgresql.was_lost(failed):
                    raise
            else:
                return session
            time.sleep(pause)

    def _was_undone(self, failed: DriverError, *, is_committing: bool) -> bool:
        """Whether nothing of the transaction has happened, and another try may fare better."""
        if self.is_embedded:
            return False
        return postgresql.was_undone(failed) or (not is_committing and postgresql.was_lost(failed))

    def _revision(self) -> str | None:
        with self._readers.connect() as connection:
            if not inspect(connection).has_table("alembic_version"):
                return None
            revision: str | None = connection.scalar(
                text("SELECT version_num FROM alembic_version")
            )
            return revision

    def _upgrade_lock(self) -> AbstractContextManager[object]:
        """PostgreSQL has its own, which `migrations/env.py` takes."""
        if not self.is_embedded:
            return nullcontext()
        return FileLock(f"{self.place}.upgrade.lock", mode=0o600)

    def _migrate(self) -> None:
        # Only a process that has to migrate pays for the import.
        from alembic import command
        from alembic.config import Config
        from alembic.util import CommandError

        config = Config()
        config.set_main_option("script_location", str(migrations_dir()).replace("%", "%%"))
        if self.is_embedded:
            sqlite.use_wal(self._engine)
        with self._engine.begin() as connection:
            config.attributes["connection"] = connection
            try:
                command.upgrade(config, REVISION)
            except CommandError as failed:
                raise DatabaseError(
                    f"The database {self.place} has a schema that this version of batchjobs"
                    f" does not know ({failed}); use the version that wrote it, or a newer one."
                ) from failed

    @contextmanager
    def _explained(self, *, also: type[DriverError] | None = None) -> Iterator[None]:
        try:
            yield
        except PoolTimeout as failed:
            raise DatabaseError(
                f"The database {self.place} failed: all connections of this process are in use."
            ) from failed
        except DriverError as failed:
            if not _is_no_fault_of_ours(failed) and type(failed) is not also:
                raise
            reason = str(failed.orig).strip().partition("\n")[0].rstrip(".")
            raise DatabaseError(f"The database {self.place} failed: {reason}.") from failed


def open_engine(url: str) -> Engine:
    """Raises UsageError for a URL that is none, or is of another kind of database."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise UsageError(_WRONG_URL) from None  # the cause may show the password
    if parsed.drivername in postgresql.SCHEMES:
        return postgresql.open_engine(parsed)
    if parsed.drivername == "sqlite":
        return sqlite.open_engine(parsed)
    raise UsageError(_WRONG_URL)


def hold_lock(session: Session, name: str) -> None:
    """Until the transaction ends, other holders of this name wait: for what is decided by rows
    that are not there. A writer of SQLite is alone in any case."""
    connection = session.connection()
    if connection.dialect.name != "sqlite":
        postgresql.hold_lock(connection, name)


def migrations_dir() -> Path:
    """Inside an installed package, or beside the package in a checkout."""
    return _INSTALLED_MIGRATIONS if _INSTALLED_MIGRATIONS.is_dir() else _CHECKOUT_MIGRATIONS


_WRONG_URL = (
    "BATCHJOBS_DATABASE_URL is not usable: it must read postgresql://USER:PASSWORD@HOST:PORT/NAME"
    " (characters of the password that are not letters or digits as %XX), or sqlite:///PATH."
)


def _is_no_fault_of_ours(failed: DriverError) -> bool:
    return type(failed) in (OperationalError, InternalError, DriverError) or (
        postgresql.lacks_privilege(failed)
    )


def _pauses() -> Iterator[float]:
    """Seconds to wait before each next try; they grow, and differ between processes."""
    end = time.monotonic() + RETRY_SECONDS
    pause = 0.05
    while time.monotonic() < end:
        yield pause * random.uniform(0.5, 1)  # noqa: S311
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
