"""Files: an object in the store and the row that makes it one of ours.

To one tenant, another's file is as unknown as one that never was. Without a `tenant`, a function
sees everyone's: for operators and workers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import BinaryIO

from sqlalchemy import ColumnElement, Select, and_, exists, or_, select
from sqlalchemy.orm import Session

from batchjobs.clock import Clock
from batchjobs.deployment import Deployment
from batchjobs.errors import ConflictError, NotFoundError, TooLargeError
from batchjobs.evals.tables import EvalRun
from batchjobs.ids import new_file_id
from batchjobs.models import DEFAULT_TENANT, File, Job
from batchjobs.states import TERMINAL
from batchjobs.store.base import ObjectStore, ObjectWriter
from batchjobs.store.layout import (
    EVALS_PREFIX,
    FILES_PREFIX,
    JOBS_PREFIX,
    MANIFESTS_PREFIX,
    file_key,
    job_of,
)

CHUNK_BYTES = 1 << 20
ORPHAN_SECONDS = 24 * 3600
"""Age at which an object without a row can only be what a crash left: rows follow at once."""
SWEEP_FILES = 500
"""How many files are looked up or deleted at a time."""


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
    session: Session,
    clock: Clock,
    written: FileWriter,
    *,
    filename: str,
    purpose: str,
    expires_after: timedelta | None = None,
    tenant: str = DEFAULT_TENANT,
) -> File:
    """Make a written object a file. `filename` is kept as the user's word for it."""
    now = clock.now(session)
    file = File(
        id=written.file_id,
        purpose=purpose,
        filename=_storable(filename),
        bytes=written.size,
        sha256=written.sha256,
        key=file_key(written.file_id),
        tenant=tenant,
        created_at=now,
        expires_at=None if expires_after is None else now + expires_after,
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
    tenant: str = DEFAULT_TENANT,
) -> File:
    """Take in a file of any content, in bounded memory.

    Raises:
        TooLargeError: it has more than `max_bytes`; nothing of it is kept.
        StoreError: it cannot be stored.
    """
    with create_file(deployment.store) as written:
        while chunk := stream.read(CHUNK_BYTES):
            written.write(chunk)
            if max_bytes is not None and written.size > max_bytes:
                raise too_large(filename, max_bytes)
    with deployment.database.write() as session:
        return add_row(
            session,
            deployment.clock,
            written,
            filename=filename,
            purpose=purpose,
            tenant=tenant,
        )


def get_file(session: Session, file_id: str, *, tenant: str | None = None) -> File:
    """Raises NotFoundError."""
    file = find_file(session, file_id, tenant=tenant)
    if file is None:
        raise NotFoundError(f"No such File object: {file_id}", param="id")
    return file


def find_file(
    session: Session, file_id: str, *, tenant: str | None = None, for_update: bool = False
) -> File | None:
    """None if there is no such file. `for_update` keeps it from being deleted meanwhile."""
    file = session.get(File, file_id, with_for_update=for_update)
    return None if file is None or tenant not in (None, file.tenant) else file


def open_file(store: ObjectStore, file: File) -> BinaryIO:
    """The file's bytes. The caller closes it. Raises ObjectMissingError."""
    return store.open(file.key)


def page(
    session: Session,
    *,
    limit: int,
    after: str | None = None,
    newest_first: bool = True,
    purpose: str | None = None,
    tenant: str | None = None,
) -> tuple[Sequence[File], bool]:
    """At most `limit` files that follow the file `after`, and whether more do.

    Raises NotFoundError for an unknown `after`.
    """
    query = select(File).limit(limit + 1)
    if tenant is not None:
        query = query.where(File.tenant == tenant)
    if purpose is not None:
        query = query.where(File.purpose == purpose)
    if newest_first:
        query = query.order_by(File.created_at.desc(), File.id.desc())
    else:
        query = query.order_by(File.created_at, File.id)
    if after is not None:
        query = query.where(_follows(get_file(session, after, tenant=tenant), newest_first))
    files = session.scalars(query).all()
    return files[:limit], len(files) > limit > 0


def delete_file(deployment: Deployment, file_id: str, *, tenant: str | None = None) -> None:
    """Take the file out of the database, then out of the store.

    Raises:
        NotFoundError: no such file.
        ConflictError: a job that has not ended reads it.
    """
    key = deployment.database.transact(lambda session: _delete_row(session, file_id, tenant))
    deployment.store.delete(key)


def remove_expired(deployment: Deployment) -> int:
    """Delete the files whose time is up and that no job needs any more. Says how many."""
    with deployment.database.read() as session:
        now = deployment.clock.now(session)
        expired = session.scalars(
            select(File.id)
            .where(File.expires_at <= now, ~exists().where(_reads(File)))
            .limit(SWEEP_FILES)
        ).all()
    for file_id in expired:
        with suppress(NotFoundError, ConflictError):  # another process was first, or a job
            delete_file(deployment, file_id)
    return len(expired)


def remove_orphans(deployment: Deployment, *, older_than_seconds: float = ORPHAN_SECONDS) -> int:
    """Delete what a crash has left: objects of files that have no row, of jobs that have ended,
    manifests of jobs that are gone, and what no eval run names. Says how many."""
    removed = 0
    for prefix, known in (
        (FILES_PREFIX, _known_files),
        (JOBS_PREFIX, _running_jobs),
        (MANIFESTS_PREFIX, _known_jobs),
        (EVALS_PREFIX, _kept_of_runs),
    ):
        keys = list(deployment.store.list_older(prefix, older_than_seconds))
        for first in range(0, len(keys), SWEEP_FILES):
            some = keys[first : first + SWEEP_FILES]
            with deployment.database.read() as session:
                kept = known(session, some)
            orphans = [key for key in some if key not in kept]
            for key in orphans:
                deployment.store.delete(key)
            removed += len(orphans)
    return removed


def _known_files(session: Session, keys: Sequence[str]) -> set[str]:
    return set(session.scalars(select(File.key).where(File.key.in_(keys))))


def _known_jobs(session: Session, keys: Sequence[str]) -> set[str]:
    """The keys that belong to a job."""
    return _of_jobs(session, keys, select(Job.id))


def _running_jobs(session: Session, keys: Sequence[str]) -> set[str]:
    """The keys that belong to a job that has not ended."""
    return _of_jobs(session, keys, select(Job.id).where(Job.status.not_in(TERMINAL)))


def _kept_of_runs(session: Session, keys: Sequence[str]) -> set[str]:
    """The keys that a run of an eval suite names."""
    columns = (EvalRun.suite_key, EvalRun.plan_key, EvalRun.answers_key)
    found: set[str | None] = set()
    for column in columns:
        found.update(session.scalars(select(column).where(column.in_(keys))))
    return {key for key in found if key is not None}


def _of_jobs(session: Session, keys: Sequence[str], jobs: Select[str]) -> set[str]:
    owners = {key: job_of(key) for key in keys}
    found = set(session.scalars(jobs.where(Job.id.in_(set(owners.values())))))
    return {key for key, owner in owners.items() if owner in found}


def too_large(filename: str, max_bytes: int) -> TooLargeError:
    """What is said of a file with more than `max_bytes`."""
    return TooLargeError(
        f"The file {_storable(filename)} is too large: it has more than {max_bytes:,} bytes."
        " Split it, or raise BATCHJOBS_MAX_INPUT_BYTES.",
        param="file",
        code="file_too_large",
    )


def _delete_row(session: Session, file_id: str, tenant: str | None) -> str:
    """The key of the object, which is then no file's."""
    file = get_file(session, file_id, tenant=tenant)
    reader = session.scalar(select(Job.id).where(_reads(file)).limit(1))
    if reader is not None:
        raise ConflictError(
            f"Cannot delete the file '{file_id}': the batch '{reader}' has not ended and reads it."
            " Wait for its end, or cancel it."
        )
    session.delete(file)
    return file.key


def _follows(file: File, newest_first: bool) -> ColumnElement[bool]:
    """Whether a row comes behind `file` in a list."""
    same = File.created_at == file.created_at
    if newest_first:
        return or_(File.created_at < file.created_at, and_(same, File.id < file.id))
    return or_(File.created_at > file.created_at, and_(same, File.id > file.id))


def _reads(file: File | type[File]) -> ColumnElement[bool]:
    """Whether a job still needs the file as its input: another tenant's may name it in vain."""
    return and_(
        Job.input_file_id == file.id, Job.tenant == file.tenant, Job.status.not_in(TERMINAL)
    )


def _storable(filename: str) -> str:
    """Names of undecodable bytes and with NUL are legal somewhere, but not in a database."""
    return filename.encode(errors="replace").decode().replace("\0", "")
