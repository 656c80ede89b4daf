"""Real `beat` processes over one schedule: however many, and however they end, a slot runs once."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import update

from batchjobs import catalogue
from batchjobs.deployment import Deployment
from batchjobs.queue import jobs
from batchjobs.schedules.desk import Desk
from batchjobs.schedules.tables import Schedule
from batchjobs.settings import Settings
from tests.support.api import beat
from tests.support.jobs import MODEL
from tests.unit.schedules.nights import add_schedule, slots_of

WAIT_SECONDS = 60
LOOK_SECONDS = 0.1


def eventually(look: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while not look():
        assert time.monotonic() < until
        time.sleep(LOOK_SECONDS)


def make_due(deployment: Deployment) -> None:
    """A slot of a few minutes ago, which nobody was there for, of lines that cannot run."""
    due = datetime.now(UTC) - timedelta(minutes=5)
    add_schedule(deployment, f"{due.minute} {due.hour} * * *")
    with deployment.database.write() as session:
        catalogue.remove(session, MODEL)
        session.execute(update(Schedule).values(seen_until=due - timedelta(minutes=1)))


def jobs_of(deployment: Deployment) -> list[str]:
    with deployment.database.read() as session:
        return [job.id for job in jobs.page(session, limit=10)[0]]


def status_of(deployment: Deployment) -> list[str]:
    return [slot["status"] for slot in slots_of(deployment)]


def test_three_beats_run_a_slot_once_and_one_that_is_killed_loses_none(
    tmp_path: Path, database_url: str | None
) -> None:
    settings: dict[str, Any] = {"poll_seconds": 0.1, "log_level": "warning"}
    if database_url is not None:
        settings["database_url"] = database_url
    with Deployment.open(Settings.load(home=tmp_path, **settings)) as deployment, ExitStack() as up:
        make_due(deployment)
        first, *_ = [up.enter_context(beat(tmp_path, **settings)) for _ in range(3)]
        eventually(lambda: status_of(deployment) in (["running"], ["failed"]))
        first.kill()
        eventually(lambda: status_of(deployment) == ["failed"])
        Desk(deployment).run("nightly")
        eventually(lambda: status_of(deployment) == ["failed", "failed"])
        slots = slots_of(deployment)
        assert [slot["kind"] for slot in slots] == ["cron", "manual"]
        # The file names a model that is gone by now: each slot has one job, which has failed.
        assert sorted(jobs_of(deployment)) == sorted(slot["batch_id"] for slot in slots)
