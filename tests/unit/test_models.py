from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from sqlalchemy import select

from batchjobs.deployment import Deployment
from batchjobs.errors import NotFoundError
from batchjobs.models import File, Job
from batchjobs.queue import jobs
from batchjobs.states import JobState
from tests.support.jobs import create_job, load_job, open_deployment


@pytest.fixture
def deployment(tmp_path: Path, database_url: str | None) -> Iterator[Deployment]:
    with open_deployment(tmp_path, database_url=database_url) as opened:
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


def test_words_of_a_user_are_kept_as_far_as_a_database_can(deployment: Deployment) -> None:
    asked = {
        "endpoint": "/v1/" + "x" * 100,
        "model_override": "a\0b\ud800",
        "metadata": {"k\0": "\0"},
    }
    job = load_job(deployment, create_job(deployment, "file-\0", **asked))
    assert job.endpoint == "/v1/" + "x" * 60
    assert job.model_override == "a\N{REPLACEMENT CHARACTER}b?"
    assert job.input_file_id == "file-\N{REPLACEMENT CHARACTER}"
    assert job.job_metadata == {"k\0": "\0"}


@pytest.mark.parametrize("job_id", ["batch_\0", "batch_\ud800", "batch_" + "0" * 100, ""])
def test_id_that_none_can_have_is_not_found(deployment: Deployment, job_id: str) -> None:
    with pytest.raises(NotFoundError), deployment.database.read() as session:
        jobs.get(session, job_id)
