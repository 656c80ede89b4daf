"""What is so on SQLite; tests/contract/test_databases.py has what any database promises."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import text

from batchjobs.db import REVISION, Database, migrations_dir
from batchjobs.errors import DatabaseError
from tests.support.counters import add_counters, set_value, value
from tests.support.disk import file_size_limit


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "facts.sqlite3"


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    opened = Database.open(f"sqlite:///{path}")
    opened.upgrade()
    add_counters(opened, "a")
    yield opened
    opened.close()


def test_writers_that_read_first_lose_no_update(database: Database) -> None:
    """With deferred transactions this fails at once with "database is locked"."""
    threads, rounds = 6, 20
    failures: list[BaseException] = []

    def increment() -> None:
        try:
            for _ in range(rounds):
                with database.write() as session:
                    old = session.execute(text("SELECT value FROM counters")).scalar_one()
                    session.execute(text("UPDATE counters SET value = :new"), {"new": old + 1})
        except BaseException as failed:
            failures.append(failed)

    running = [threading.Thread(target=increment) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert failures == []
    assert value(database) == threads * rounds


def test_every_connection_is_durable_patient_and_checks_references(database: Database) -> None:
    expected = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 30_000}
    with database.read() as session:
        found = {name: session.scalar(text(f"PRAGMA {name}")) for name in expected}
    assert found == expected


def test_revision_is_the_newest_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(migrations_dir()))
    assert ScriptDirectory.from_config(config).get_heads() == [REVISION]


def test_upgrade_of_an_upgraded_database_does_not_wait_for_a_lock(path: Path) -> None:
    database = Database.open(f"sqlite:///{path}")
    database.upgrade()
    with database._upgrade_lock():
        database.upgrade()
    database.close()


def test_one_of_many_that_find_no_schema_migrates(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = 4
    barrier = threading.Barrier(threads)
    look, migrate = Database._revision, Database._migrate
    has_looked = threading.local()
    migrated: list[bool] = []

    def look_together(database: Database) -> str | None:
        found = look(database)
        if not hasattr(has_looked, "first"):
            has_looked.first = found
            barrier.wait(timeout=30)
        return found

    def migrate_counted(database: Database) -> None:
        migrated.append(True)
        migrate(database)

    monkeypatch.setattr(Database, "_revision", look_together)
    monkeypatch.setattr(Database, "_migrate", migrate_counted)

    def upgrade() -> None:
        database = Database.open(f"sqlite:///{path}")
        database.upgrade()
        database.close()

    running = [threading.Thread(target=upgrade) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert migrated == [True]


def test_file_that_is_no_database_is_a_database_error(path: Path) -> None:
    path.write_text("This is a letter to my grandmother, and it is quite long." * 20)
    database = Database.open(f"sqlite:///{path}")
    with pytest.raises(DatabaseError, match=r"facts\.sqlite3 failed: file is not a database"):
        database.upgrade()
    database.close()


def test_full_disk_is_a_database_error_and_nothing_is_lost(database: Database, path: Path) -> None:
    set_value(database, 1)
    size = path.stat().st_size

    def fill() -> None:
        with database.write() as session:
            session.execute(
                text("INSERT INTO counters VALUES (:name, 1)"), {"name": "x" * 9 * size}
            )

    with file_size_limit(2 * size), pytest.raises(DatabaseError, match="disk"):
        fill()
    assert value(database) == 1
    set_value(database, 2)
    assert value(database) == 2


def test_database_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    database = Database.open(f"sqlite:///{tmp_path}/none/facts.sqlite3")
    with pytest.raises(DatabaseError, match=r"none/facts\.sqlite3 failed: unable to open"):
        database.upgrade()
    database.close()
