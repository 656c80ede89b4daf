"""Which workers of this host are alive, told by locks that the kernel drops with the process.

It shortens the wait for a dead worker's lease where every worker is a process of this host: on the
embedded database. On a server of several hosts no lock here tells of a worker there, so that only
leases count."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout
from sqlalchemy.orm import Session

from batchjobs.queue import claims


@contextmanager
def present(directory: Path, worker: str) -> Iterator[None]:
    """The worker of this id is alive to others until the context or the process ends."""
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with _lock(directory, worker):
            yield
    finally:
        _path(directory, worker).unlink(missing_ok=True)


def is_alive(directory: Path, worker: str) -> bool:
    path = _path(directory, worker)
    if not path.exists():
        return False
    try:
        with _lock(directory, worker):
            path.unlink(missing_ok=True)
            return False
    except Timeout:
        return True


def release_dead(session: Session, directory: Path) -> int:
    """Queue again what dead workers held, who all were of this host; says how many shards."""
    dead = [owner for owner in claims.owners(session) if not is_alive(directory, owner)]
    return sum(claims.release_owner(session, owner) for owner in dead)


def _lock(directory: Path, worker: str) -> FileLock:
    return FileLock(_path(directory, worker), timeout=0)


def _path(directory: Path, worker: str) -> Path:
    return directory / f"{worker}.lock"
