from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from batchjobs.deployment import Deployment
from batchjobs.errors import ConflictError, NotFoundError, TooLargeError
from batchjobs.files import (
    CHUNK_BYTES,
    add_file,
    add_row,
    create_file,
    delete_file,
    get_file,
    open_file,
    remove_expired,
    remove_orphans,
)
from batchjobs.models import File
from batchjobs.queue import jobs
from batchjobs.worker.tending import tend
from tests.support.jobs import START, clock_of, create_job, open_deployment


@pytest.fixture
def deployment(tmp_path: Path, database_url: str | None) -> Iterator[Deployment]:
    with open_deployment(tmp_path, database_url=database_url) as opened:
        yield opened


class FailingStream(io.BytesIO):
    """Gives one chunk, then breaks."""

    def read(self, size: int | None = -1) -> bytes:
        chunk = super().read(size)
        if not chunk:
            raise ConnectionResetError("The connection was cut.")
        return chunk


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, 2 * CHUNK_BYTES + 7])
def test_added_file_has_its_bytes_size_and_digest(deployment: Deployment, size: int) -> None:
    data = b"0123456" * (size // 7) + b"x" * (size % 7)
    added = add_file(deployment, io.BytesIO(data), filename="in.jsonl", purpose="batch")
    with deployment.database.read() as session:
        file = get_file(session, added.id)
    assert (file.bytes, file.sha256) == (size, hashlib.sha256(data).hexdigest())
    assert (file.filename, file.purpose, file.created_at) == ("in.jsonl", "batch", START)
    with open_file(deployment.store, file) as stream:
        assert stream.read() == data


def test_file_at_its_limit_is_taken(deployment: Deployment) -> None:
    stream = io.BytesIO(b"12345")
    assert add_file(deployment, stream, filename="a", purpose="batch", max_bytes=5).bytes == 5


@pytest.mark.parametrize("size", [6, 5 * CHUNK_BYTES])
def test_too_large_file_is_refused_early_and_leaves_nothing(
    deployment: Deployment, size: int
) -> None:
    stream = io.BytesIO(bytes(size))
    with pytest.raises(TooLargeError, match=r"a\.jsonl is too large: it has more than 5 "):
        add_file(deployment, stream, filename="a.jsonl", purpose="batch", max_bytes=5)
    assert stream.tell() <= CHUNK_BYTES
    assert list(deployment.store.list("")) == []


def test_upload_that_is_cut_leaves_nothing(deployment: Deployment) -> None:
    with pytest.raises(ConnectionResetError):
        add_file(deployment, FailingStream(b"half"), filename="a", purpose="batch")
    assert list(deployment.store.list("")) == []


@pytest.mark.parametrize(
    ("filename", "kept"),
    [
        ("../../etc/passwd", "../../etc/passwd"),
        ("Prüfung 🙂.jsonl", "Prüfung 🙂.jsonl"),
        ("undecodable \udcff", "undecodable ?"),
        ("nul\0byte", "nulbyte"),
    ],
)
def test_filename_is_only_a_word(deployment: Deployment, filename: str, kept: str) -> None:
    file = add_file(deployment, io.BytesIO(b""), filename=filename, purpose="batch")
    with deployment.database.read() as session:
        assert get_file(session, file.id).filename == kept
    assert file.key == f"files/{file.id}.jsonl"


def test_unknown_file_is_not_found(deployment: Deployment) -> None:
    with (
        deployment.database.read() as session,
        pytest.raises(NotFoundError, match="No such File object: file-none"),
    ):
        get_file(session, "file-none")


def add_expiring(deployment: Deployment, hours: int | None) -> File:
    """A file that is gone after so many hours."""
    with create_file(deployment.store) as written:
        written.write(b"x")
    with deployment.database.write() as session:
        return add_row(
            session,
            deployment.clock,
            written,
            filename="a",
            purpose="batch",
            expires_after=None if hours is None else timedelta(hours=hours),
        )


def file_ids(deployment: Deployment) -> set[str]:
    keys = deployment.store.list("files/")
    return {key.removeprefix("files/").removesuffix(".jsonl") for key in keys}


def test_expired_files_are_removed_and_others_stay(deployment: Deployment) -> None:
    short, long, ever = (add_expiring(deployment, hours) for hours in (1, 2, None))
    assert short.expires_at == START + timedelta(hours=1)
    clock_of(deployment).advance(timedelta(hours=1) - timedelta(microseconds=1))
    assert remove_expired(deployment) == 0
    clock_of(deployment).advance(timedelta(microseconds=1))
    assert remove_expired(deployment) == 1
    assert file_ids(deployment) == {long.id, ever.id}
    with deployment.database.read() as session, pytest.raises(NotFoundError):
        get_file(session, short.id)


def test_expired_input_stays_until_its_job_has_ended(deployment: Deployment) -> None:
    file = add_expiring(deployment, 1)
    job_id = create_job(deployment, file.id)
    clock_of(deployment).advance(timedelta(hours=2))
    assert remove_expired(deployment) == 0
    with deployment.database.write() as session:
        jobs.cancel(session, deployment.clock, job_id)
    tend(deployment)
    assert remove_expired(deployment) == 1
    assert file_ids(deployment) == set()


def test_file_that_a_job_reads_is_not_deleted(deployment: Deployment) -> None:
    file = add_expiring(deployment, None)
    job_id = create_job(deployment, file.id)
    with pytest.raises(ConflictError, match=job_id):
        delete_file(deployment, file.id)
    assert file_ids(deployment) == {file.id}


def test_objects_of_jobs_are_removed_when_old_and_the_job_has_ended(
    deployment: Deployment,
) -> None:
    running, ended = create_job(deployment), create_job(deployment)
    for job_id in (running, ended, "batch_gone"):
        deployment.store.put(f"jobs/{job_id}/plan-1.jsonl", b"")
        deployment.store.put(f"jobs/{job_id}/shards/000000/000001-000000.jsonl", b"")
        deployment.store.put(f"manifests/{job_id}.json", b"")
    with deployment.database.write() as session:
        jobs.fail_validation(session, deployment.clock, ended, [])
    assert remove_orphans(deployment) == 0
    assert remove_orphans(deployment, older_than_seconds=0) == 5
    assert list(deployment.store.list("")) == [
        f"jobs/{running}/plan-1.jsonl",
        f"jobs/{running}/shards/000000/000001-000000.jsonl",
        *sorted(f"manifests/{job_id}.json" for job_id in (running, ended)),
    ]


def test_objects_without_a_file_are_removed_when_old(deployment: Deployment) -> None:
    file = add_expiring(deployment, None)
    with create_file(deployment.store) as orphan:
        orphan.write(b"x")
    assert remove_orphans(deployment) == 0
    assert file_ids(deployment) == {file.id, orphan.file_id}
    assert remove_orphans(deployment, older_than_seconds=0) == 1
    assert file_ids(deployment) == {file.id}
