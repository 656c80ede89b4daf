from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from sqlalchemy import select

from batchjobs.deployment import Deployment
from batchjobs.models import File, Job
from batchjobs.states import JobState
from tests.support.jobs import create_job, load_job, open_deployment


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with open_deployment(tmp_path) as opened:
        yield opened


def test_state_reads_back_as_a_member_and_is_stored_as_its_wire_word(
    deployment: Deployment,
) -> None:
    job_id = create_job(deployment)
    assert load_job(deployment, job_id).status is JobState.VALIDATING
    with deployment.database.read() as session:
        raw = session.connection().exec_driver_sql("SELECT status FROM jobs").scalar_one()
        found = session.scalars(select(Job.id).where(Job.status == JobState.VALIDATING)).all()
    assert raw == "validating"
    assert found == [job_id]


def test_moment_of_any_zone_reads_back_as_the_same_moment_in_utc(deployment: Deployment) -> None:
    moment = datetime(2026, 3, 29, 3, 30, 0, 123456, timezone(timedelta(hours=2)))
    file = File(
        id="file-1", purpose="batch", filename="a", bytes=0, sha256="", key="a", created_at=moment
    )
    with deployment.database.write() as session:
        session.add(file)
    with deployment.database.read() as session:
        loaded = session.get_one(File, "file-1").created_at
        found = session.scalars(select(File.id).where(File.created_at <= moment)).all()
    assert loaded == moment
    assert loaded.utcoffset() == timedelta(0)
    assert found == ["file-1"]
