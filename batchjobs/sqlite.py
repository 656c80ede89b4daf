"""SQLite: the embedded database, a file of this host."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from sqlalchemy import URL, Connection, Engine, create_engine, event

BUSY_TIMEOUT_MS = 30_000
"""How long a writer waits for another's transaction."""
READ_ONLY: dict[str, Any] = {"read_only": True}
"""Execution options of a transaction that must not write."""


def open_engine(url: URL) -> Engine:
    engine = create_engine(url)
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    return engine


def use_wal(engine: Engine) -> None:
    """Lasts in the file; switching needs the file alone, so it is not done per connection."""
    connection = engine.raw_connection()
    try:
        connection.cursor().execute("PRAGMA journal_mode=WAL")
    finally:
        connection.close()


def _configure(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # the driver's own BEGIN is always a deferred one
    for pragma in (
        f"busy_timeout={BUSY_TIMEOUT_MS}",
        "foreign_keys=ON",
        "synchronous=FULL",  # a commit survives a power loss
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Connection) -> None:
    read_only = connection.get_execution_options().get("read_only", False)
    connection.exec_driver_sql(f"PRAGMA query_only={'ON' if read_only else 'OFF'}")
    connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")


@contextmanager
def alone(path: str, name: str) -> Iterator[bool]:
    """Whether nobody else is in this context of this name; the kernel ends it with the process."""
    lock = FileLock(f"{path}.{name}.lock", timeout=0, mode=0o600)
    try:
        lock.acquire()
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()
