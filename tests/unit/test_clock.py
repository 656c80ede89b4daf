from __future__ import annotations

from datetime import timedelta

from sqlalchemy import text

from batchjobs.clock import DatabaseClock
from batchjobs.db import Database


def test_clock_of_a_server_is_the_servers_and_moves_within_a_transaction(
    postgres_url: str,
) -> None:
    database = Database.open(postgres_url)
    clock = DatabaseClock()
    with database.read() as session:
        began = session.execute(text("SELECT now()")).scalar_one()
        first, second = clock.now(session), clock.now(session)
        servers = session.execute(text("SELECT clock_timestamp()")).scalar_one()
    database.close()
    assert began < first < second < servers
    assert second.utcoffset() == timedelta(0)
