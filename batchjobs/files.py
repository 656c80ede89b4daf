"""Files: an object in the store and the row that makes it one of ours."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from sqlalchemy.orm import Session

from batchjobs.clock import Clock
from batchjobs.deployment import Deployment
from batchjobs.errors import InvalidRequestError, NotFoundError
from batchjobs.ids import new_file_id
from batchjobs.models import File
from batchjobs.store.base import ObjectStore, ObjectWriter
from batchjobs.store.layout import file_key

CHUNK_BYTES = 1 << 20


class FileWriter:
    """The object of a file in the making: counts and hashes what goes through."""

    def __init__(self, file_id: str, target: ObjectWriter) -> None:
        self.file_id = file_id
        self.size = 0
        self._target = target
        self._digest = hashlib.sha256()

    def write(self, data: bytes) -> None:
        self._target.write(data)
        self._digest.update(data)
        self.size += len(data)

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


@contextmanager
def create_file(store: ObjectStore) -> Iterator[FileWriter]:
    """Write a new file's object; it exists when the context ends well. `add_row` comes next."""
    file_id = new_file_id()
    with store.create(file_key(file_id)) as target:
        yield FileWriter(file_id, target)


def add_row(
    session: Session, clock: Clock, written: FileWriter, *, filename: str, purpose: str
) -> File:
    """Make a written object a file. `filename` is kept as the user's word for it."""
    file = File(
        id=written.file_id,
        purpose=purpose,
        filename=_storable(filename),
        bytes=written.size,
        sha256=written.sha256,
        key=file_key(written.file_id),
        created_at=clock.now(session),
    )
    session.add(file)
    session.flush()
    return file


def add_file(
    deployment: Deployment,
    stream: BinaryIO,
    *,
    filename: str,
    purpose: str,
    max_bytes: int | None = None,
) -> File:
    """Take in a file of any content, in bounded memory.

    Raises:
        InvalidRequestError: it has more than `max_bytes`; nothing of it is kept.
        StoreError: it cannot be stored.
    """
    with create_file(deployment.store) as written:
        while chunk := stream.read(CHUNK_BYTES):
            written.write(chunk)
            if max_bytes is not None and written.size > max_bytes:
                raise InvalidRequestError(
                    f"The file {_storable(filename)} is too large: it has more than"
                    f" {max_bytes:,} bytes. Split it, or raise BATCHJOBS_MAX_INPUT_BYTES.",
                    param="file",
                    code="file_too_large",
                )
    with deployment.database.write() as session:
        return add_row(session, deployment.clock, written, filename=filename, purpose=purpose)


def get_file(session: Session, file_id: str) -> File:
    """Raises NotFoundError."""
    file = session.get(File, file_id)
    if file is None:
        raise NotFoundError(f"No such File object: {file_id}", param="id")
    return file


def open_file(store: ObjectStore, file: File) -> BinaryIO:
    """The file's bytes. The caller closes it. Raises ObjectMissingError."""
    return store.open(file.key)


def _storable(filename: str) -> str:
    """Names of undecodable bytes and with NUL are legal somewhere, but not in a database."""
    return filename.encode(errors="replace").decode().replace("\0", "")
