"""What is so on PostgreSQL; tests/contract/test_databases.py has what any database promises."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest
from sqlalchemy import event, make_url, text
from sqlalchemy.orm import Session

from batchjobs import db
from batchjobs.db import Database, hold_lock
from batchjobs.errors import DatabaseError, UsageError
from batchjobs.settings import Settings
from tests.support.counters import add_counters, value
from tests.support.servers.postgres import wait_for_waiter

SECRET = "tell-nobody"


@pytest.fixture
def database(postgres_url: str) -> Iterator[Database]:
    opened = Database.open(postgres_url)
    add_counters(opened, "a", "b")
    yield opened
    opened.close()


def increment(session: Session, name: str = "a") -> None:
    session.execute(
        text("UPDATE counters SET value = value + 1 WHERE name = :name"), {"name": name}
    )


def backend(session: Session) -> int:
    return int(session.execute(text("SELECT pg_backend_pid()")).scalar_one())


def end_backends(url: str, pid: int | None = None) -> None:
    """Cut one connection to the database, or all, and wait until they are gone."""
    which = (
        "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND %(pid)s::int IS NULL OR pid = %(pid)s"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"SELECT pg_terminate_backend(pid, 10000) {which}", {"pid": pid})


def show(session: Session, name: str) -> str:
    return str(session.execute(text(f"SHOW {name}")).scalar_one())


def test_nothing_may_take_for_ever(database: Database) -> None:
    with database.read() as session:
        assert show(session, "statement_timeout") == "1min"
        assert show(session, "lock_timeout") == "30s"
        assert show(session, "idle_in_transaction_session_timeout") == "1min"
        assert show(session, "application_name") == "batchjobs"
        driver = session.connection().connection.driver_connection
        assert driver is not None
        parameters = driver.info.get_parameters()
    assert parameters["connect_timeout"] == "10"
    assert parameters["keepalives_idle"] == "30"
    assert parameters["tcp_user_timeout"] == "60000"


def test_url_has_the_last_word_on_limits(postgres_url: str) -> None:
    url = f"{postgres_url}?options=-c%20lock_timeout%3D5s&application_name=mine"
    database = Database.open(url)
    with database.read() as session:
        assert show(session, "lock_timeout") == "5s"
        assert show(session, "statement_timeout") == "1min"
        assert show(session, "application_name") == "mine"
    database.close()


def test_statement_that_waits_too_long_for_a_lock_is_a_database_error(
    database: Database, postgres_url: str
) -> None:
    impatient = Database.open(f"{postgres_url}?options=-c%20lock_timeout%3D10ms")

    def wait() -> None:
        with impatient.write() as session:
            increment(session)

    with database.write() as session:
        increment(session)
        with pytest.raises(DatabaseError, match="lock timeout"):
            wait()
    impatient.close()
    assert value(database) == 1


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_any_spelling_of_the_scheme_will_do(postgres_url: str, scheme: str) -> None:
    database = Database.open(postgres_url.replace("postgresql", scheme, 1))
    with database.read() as session:
        assert session.scalar(text("SELECT 1")) == 1
    database.close()


@pytest.mark.parametrize(
    "url",
    [
        f"mysql://user:{SECRET}@host/name",
        f"postgresql+asyncpg://user:{SECRET}@host/name",
        f"user:{SECRET}@host",
        f"postgresql://user:{SECRET}@host:port/name",
        "",
    ],
)
def test_url_of_no_use_is_refused_without_the_password(url: str) -> None:
    with pytest.raises(UsageError, match="BATCHJOBS_DATABASE_URL is not usable") as refused:
        Database.open(url)
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None


def test_server_that_is_not_there_is_named_without_the_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(db, "RETRY_SECONDS", 0)
    url = f"postgresql://user:{SECRET}@127.0.0.1:1/name"
    database = Database.open(url)
    with pytest.raises(DatabaseError) as failed:
        database.upgrade()
    assert failed.value.message.startswith("The database postgresql://user@127.0.0.1:1/name failed")
    assert "\n" not in failed.value.message
    assert SECRET not in str(failed.value)
    assert SECRET not in str(failed.value.__cause__)


def test_database_that_is_not_there_is_named(postgres_url: str) -> None:
    url = make_url(postgres_url).set(database="no_such_database")
    database = Database.open(url.render_as_string(hide_password=False))
    with pytest.raises(DatabaseError, match='database "no_such_database" does not exist'):
        database.upgrade()
    database.close()


def test_settings_do_not_show_the_password() -> None:
    url = f"postgresql://user:{SECRET}@host/name"
    settings = Settings.load(database_url=url)
    assert SECRET not in repr(settings)
    assert settings.database_address == url


def test_connections_that_died_in_the_pool_are_replaced(
    database: Database, postgres_url: str
) -> None:
    assert value(database) == 0
    end_backends(postgres_url)
    assert value(database) == 0
    end_backends(postgres_url)
    with database.write() as session:
        increment(session)
    assert value(database) == 1


def test_connection_lost_within_a_write_is_an_error_and_nothing_happened(
    database: Database, postgres_url: str
) -> None:
    def lose_it() -> None:
        with database.write() as session:
            increment(session)
            end_backends(postgres_url, backend(session))
            increment(session)

    with pytest.raises(DatabaseError, match="terminating connection"):
        lose_it()
    assert value(database) == 0


def test_transact_does_its_work_again_when_the_connection_is_lost(
    database: Database, postgres_url: str
) -> None:
    calls = []

    def work(session: Session) -> int:
        calls.append(backend(session))
        increment(session)
        if len(calls) == 1:
            end_backends(postgres_url, calls[0])
        increment(session)
        return len(calls)

    assert database.transact(work) == 2
    assert value(database) == 2


def test_transact_does_its_work_again_after_a_serialization_failure(database: Database) -> None:
    calls = []

    def work(session: Session) -> None:
        session.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
        calls.append(session.execute(text("SELECT value FROM counters")).scalars().first())
        if len(calls) == 1:
            with database.write() as other:
                increment(other)
        increment(session)

    database.transact(work)
    assert len(calls) == 2
    assert value(database) == 2


def test_transactions_in_a_deadlock_both_happen(database: Database) -> None:
    both_have_one = threading.Barrier(2, timeout=30)
    first_time = threading.local()

    def work(session: Session, names: str) -> None:
        increment(session, names[0])
        if not hasattr(first_time, "over"):
            first_time.over = True
            both_have_one.wait()
        increment(session, names[1])

    failures: list[BaseException] = []

    def run(names: str) -> None:
        try:
            database.transact(lambda session: work(session, names))
        except BaseException as failed:
            failures.append(failed)

    running = [threading.Thread(target=run, args=(names,)) for names in ("ab", "ba")]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert failures == []
    assert (value(database, "a"), value(database, "b")) == (2, 2)


def test_connection_lost_at_the_commit_is_not_tried_again(
    database: Database, postgres_url: str
) -> None:
    calls = []

    def work(session: Session) -> None:
        pid = backend(session)
        calls.append(pid)
        increment(session)
        event.listen(session, "before_commit", lambda _: end_backends(postgres_url, pid))

    with pytest.raises(DatabaseError):
        database.transact(work)
    assert len(calls) == 1


def test_transact_gives_up_in_the_end(
    database: Database, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(db, "RETRY_SECONDS", 0.2)
    calls = []

    def work(session: Session) -> None:
        calls.append(backend(session))
        end_backends(postgres_url, calls[-1])
        increment(session)

    with pytest.raises(DatabaseError):
        database.transact(work)
    assert len(calls) >= 2
    assert value(database) == 0


def test_upgrade_waits_for_the_one_that_is_under_way(empty_postgres_url: str) -> None:
    holder, waiter = Database.open(empty_postgres_url), Database.open(empty_postgres_url)
    upgraded: list[bool] = []
    thread = threading.Thread(target=lambda: upgraded.append(waiter.upgrade()))
    with holder.write() as session:
        hold_lock(session, "migration")
        thread.start()
        wait_for_waiter(session, thread)
        assert upgraded == []
    thread.join()
    assert upgraded == [True]
    holder.close()
    waiter.close()


def test_upgrade_at_the_newest_revision_does_not_wait_for_the_lock(database: Database) -> None:
    with database.write() as session:
        hold_lock(session, "migration")
        assert database.upgrade() is False
