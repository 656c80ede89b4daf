from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchjobs.deployment import Deployment
from batchjobs.errors import InvalidRequestError, NotFoundError
from batchjobs.files import CHUNK_BYTES, add_file, get_file, open_file
from tests.support.jobs import START, open_deployment


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with open_deployment(tmp_path) as opened:
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
    with pytest.raises(InvalidRequestError, match=r"a\.jsonl is too large: it has more than 5 "):
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
