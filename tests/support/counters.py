"""A table of a test's own in a real database: transactions have something to change in it."""

from __future__ import annotations

from sqlalchemy import text

from batchjobs.db import Database


def add_counters(database: Database, *names: str) -> None:
    """One that stands at 0 for each name."""
    with database.write() as session:
        session.execute(text("CREATE TABLE counters (name VARCHAR(8) PRIMARY KEY, value INTEGER)"))
        rows = [{"name": name} for name in names]
        session.execute(text("INSERT INTO counters VALUES (:name, 0)"), rows)


def value(database: Database, name: str = "a") -> int:
    query = text("SELECT value FROM counters WHERE name = :name")
    with database.read() as session:
        return int(session.execute(query, {"name": name}).scalar_one())


def set_value(database: Database, wanted: int, name: str = "a") -> None:
    change = text("UPDATE counters SET value = :wanted WHERE name = :name")
    with database.write() as session:
        session.execute(change, {"wanted": wanted, "name": name})
