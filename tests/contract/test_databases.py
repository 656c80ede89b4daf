"""What a database promises, whichever kind it is."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text
from sqlalchemy.exc import IntegrityError

from batchjobs.db import Database, hold_lock, open_engine
from batchjobs.errors import DatabaseError
from batchjobs.evals import tables as _eval_tables  # noqa: F401  # they are in the metadata
from batchjobs.models import DEFAULT_TENANT, Base
from batchjobs.notifications import tables as _notification_tables  # noqa: F401
from batchjobs.queue import jobs
from batchjobs.queue.tallies import Tally
from batchjobs.schedules import tables as _schedule_tables  # noqa: F401
from batchjobs.wire import batch_object
from tests.support.counters import add_counters, set_value, value
from tests.support.servers.postgres import KINDS

WAIT_SECONDS = 30


@pytest.fixture(params=KINDS)
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'facts.sqlite3'}"
    url: str = request.getfixturevalue("empty_postgres_url")
    return url


@pytest.fixture
def database(empty_url: str) -> Iterator[Database]:
    opened = Database.open(empty_url)
    opened.upgrade()
    add_counters(opened, "a")
    yield opened
    opened.close()


def tables(url: str) -> set[str]:
    engine = open_engine(url)
    try:
        with engine.connect() as connection:
            return set(inspect(connection).get_table_names())
    finally:
        engine.dispose()


def test_write_commits_at_its_end(database: Database) -> None:
    set_value(database, 1)
    assert value(database) == 1


def test_write_rolls_back_on_an_exception(database: Database) -> None:
    def fail_halfway() -> None:
        with database.write() as session:
            session.execute(text("UPDATE counters SET value = 9"))
            raise RuntimeError("halfway")

    with pytest.raises(RuntimeError, match="halfway"):
        fail_halfway()
    assert value(database) == 0


def test_transact_commits_and_gives_what_its_work_returns(database: Database) -> None:
    update = text("UPDATE counters SET value = 5 RETURNING value")
    assert database.transact(lambda session: session.scalar(update)) == 5
    assert value(database) == 5


def test_transact_rolls_back_on_an_exception_and_does_not_try_again(database: Database) -> None:
    calls = []

    def fail(session: object) -> None:
        calls.append(session)
        session.execute(text("UPDATE counters SET value = 9"))  # type: ignore[attr-defined]
        raise RuntimeError("halfway")

    with pytest.raises(RuntimeError, match="halfway"):
        database.transact(fail)
    assert len(calls) == 1
    assert value(database) == 0


def test_read_cannot_write(database: Database) -> None:
    def write_in_read() -> None:
        with database.read() as session:
            session.execute(text("UPDATE counters SET value = 9"))

    with pytest.raises(DatabaseError, match=r"read-?only"):
        write_in_read()
    set_value(database, 2)
    assert value(database) == 2


def test_read_sees_one_state_while_others_write(database: Database) -> None:
    with database.read() as session:
        before = session.execute(text("SELECT value FROM counters")).scalar_one()
        set_value(database, 3)
        assert session.execute(text("SELECT value FROM counters")).scalar_one() == before
    assert value(database) == 3


def test_holders_of_a_lock_lose_no_update(database: Database) -> None:
    threads, rounds = 6, 10
    failures: list[BaseException] = []

    def increment() -> None:
        try:
            for _ in range(rounds):
                with database.write() as session:
                    hold_lock(session, "counters")
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


HOLDER = """
import sys
from batchjobs.db import Database

with Database.open(sys.argv[1]).alone("a-job") as is_alone:
    print(is_alone, flush=True)
    sys.stdin.read()
"""


def test_one_at_a_time_is_alone_under_a_name(database: Database) -> None:
    with database.alone("one") as first, database.alone("other") as other:
        assert (first, other) == (True, True)
        with database.alone("one") as second:
            assert not second
    with database.alone("one") as again:
        assert again


def test_killed_process_is_alone_no_longer(database: Database, empty_url: str) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, empty_url], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"True\n"
    with database.alone("a-job") as is_alone:
        assert not is_alone
    holder.kill()
    holder.communicate()
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        with database.alone("a-job") as is_alone:
            if is_alone:
                return
        assert time.monotonic() < deadline


def test_broken_reference_is_refused(database: Database) -> None:
    def refer_to_nothing() -> None:
        with database.write() as session:
            session.execute(text("INSERT INTO model_aliases VALUES ('alias', 'no such model')"))

    with pytest.raises(IntegrityError, match=r"(?i)foreign key"):
        refer_to_nothing()


def test_upgrade_makes_exactly_the_tables_of_the_models(empty_url: str) -> None:
    database = Database.open(empty_url)
    database.upgrade()
    database.close()
    engine = open_engine(empty_url)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
    engine.dispose()


def test_upgrade_says_whether_there_was_something_to_do(empty_url: str) -> None:
    database = Database.open(empty_url)
    assert database.upgrade() is True
    assert database.upgrade() is False
    database.close()


def test_upgrade_that_fails_halfway_leaves_nothing(empty_url: str) -> None:
    engine = open_engine(empty_url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE parts (x INTEGER)")
    engine.dispose()
    database = Database.open(empty_url)
    with pytest.raises(DatabaseError, match=r"parts\"? already exists"):
        database.upgrade()
    database.close()
    assert tables(empty_url) == {"parts"}


def test_what_was_there_before_tenants_is_the_default_ones(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database.open(empty_url)
    with monkeypatch.context() as before:
        before.setattr("batchjobs.db.REVISION", "0003")
        database.upgrade()
    with database.write() as session:
        session.execute(
            text(
                "INSERT INTO files (id, purpose, filename, bytes, sha256, key, created_at)"
                " VALUES ('file-1', 'batch', 'a', 0, '', 'a', '2026-01-01')"
            )
        )
        session.execute(
            text(
                "INSERT INTO jobs (id, status, endpoint, completion_window, input_file_id, models,"
                " seed, created_at, expires_at, total_lines, total_bytes, request_key)"
                " VALUES ('batch_1', 'completed', '', '24h', 'file-1', '{}', 0, '2026-01-01',"
                " '2026-01-02', 0, 0, 'key')"
            )
        )
    database.upgrade()
    with database.read() as session:
        for table in ("files", "jobs"):
            assert session.scalar(text(f"SELECT tenant FROM {table}")) == DEFAULT_TENANT
    database.close()


def test_a_job_that_an_older_version_ended_stays_readable(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database.open(empty_url)
    with monkeypatch.context() as before:
        before.setattr("batchjobs.db.REVISION", "0012")
        database.upgrade()
    with database.write() as session:
        session.execute(
            text(
                "INSERT INTO jobs (id, status, endpoint, completion_window, input_file_id, models,"
                " seed, created_at, expires_at, total_lines, total_bytes, priority, due_hour)"
                " VALUES ('batch_1', 'completed', '', '24h', 'file-1', '{}', 0, '2026-01-01',"
                " '2026-01-02', 0, 0, 0, 0)"
            )
        )
    database.upgrade()
    with database.read() as session:
        job = jobs.get(session, "batch_1")
        assert batch_object(job, Tally(), [])["system_fingerprints"] is None
    database.close()


def test_processes_that_start_together_all_find_the_newest_schema(empty_url: str) -> None:
    script = """
import sys
from batchjobs.db import Database
database = Database.open(sys.argv[1])
database.upgrade()
with database.write() as session:
    session.connection()
"""
    running = [subprocess.Popen([sys.executable, "-c", script, empty_url]) for _ in range(4)]
    assert [process.wait() for process in running] == [0, 0, 0, 0]
    assert {"jobs", "shards", "alembic_version"} <= tables(empty_url)


def test_newer_schema_is_refused_with_what_to_do(database: Database) -> None:
    with database.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(DatabaseError, match="use the version that wrote it"):
        database.upgrade()
