"""A lock for a machine that several measure on: shared while loading, exclusive while measuring."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def quiet(lock: Path | None, *, exclusive: bool) -> Iterator[None]:
    """As `flock -x` or `flock -s` on the file `lock`; None is no lock."""
    if lock is None:
        yield
        return
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        yield
