"""An object store in a local directory.

Each object is first a temporary file under `tmp/`, synced to disk, and then gets its name under
`objects/` by a hard link: the one call that creates a name atomically and fails if it is taken.
"""

from __future__ import annotations

import io
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from batchjobs.errors import ObjectExistsError, ObjectMissingError, StoreError
from batchjobs.store.base import ObjectWriter
from batchjobs.store.layout import check_key, check_prefix

STALE_SECONDS = 24 * 3600
"""Age at which a temporary file can only be what a killed process left."""
BUFFER_BYTES = 1 << 20
LINK_ATTEMPTS = 100
"""How often a directory may be removed by a concurrent `delete` just before we link into it."""


class DirectoryStore:
    """One object, one file. Safe for many processes of one host; not for network filesystems."""

    def __init__(self, root: Path) -> None:
        self._objects = root / "objects"
        self._temporary = root / "tmp"
        for directory in (self._objects, self._temporary):
            with _translated("create", directory):
                directory.mkdir(parents=True, exist_ok=True)
        self.sweep()

    def put(self, key: str, data: bytes) -> None:
        with self.create(key) as writer:
            writer.write(data)

    @contextmanager
    def create(self, key: str) -> Iterator[ObjectWriter]:
        target = self._path(key)
        with _translated("write", target):
            descriptor, name = tempfile.mkstemp(dir=self._temporary)
        temporary = Path(name)
        try:
            writer = _Writer(descriptor, target)
            try:
                yield writer
                writer.sync()
            finally:
                writer.close()
            self._link(temporary, target, key)
        finally:
            temporary.unlink(missing_ok=True)

    def open(self, key: str, *, start: int = 0, end: int | None = None) -> BinaryIO:
        path = self._path(key)
        with _existing(key), _translated("read", path):
            raw = _Range(path, start, end)
        return io.BufferedReader(raw, BUFFER_BYTES)

    def size(self, key: str) -> int:
        path = self._path(key)
        with _existing(key), _translated("read", path):
            return path.stat().st_size

    def list(self, prefix: str) -> Iterator[str]:
        check_prefix(prefix)
        folder, _, _ = prefix.rpartition("/")
        for key in _walk(self._objects / folder, f"{folder}/" if folder else ""):
            if key.startswith(prefix):
                yield key

    def list_older(self, prefix: str, seconds: float) -> Iterator[str]:
        latest = time.time() - seconds
        for key in self.list(prefix):
            with suppress(FileNotFoundError):  # deleted since it was listed
                if self._path(key).stat().st_mtime <= latest:
                    yield key

    def delete(self, key: str) -> None:
        path = self._path(key)
        with _translated("delete", path):
            path.unlink(missing_ok=True)
        with suppress(OSError):  # a directory that still holds something stays
            for directory in path.parents:
                if directory == self._objects:
                    break
                directory.rmdir()

    def locate(self, key: str) -> str:
        return str(self._path(key))

    def sweep(self) -> None:
        for path in self._temporary.iterdir():
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < time.time() - STALE_SECONDS:
                    path.unlink()

    def _path(self, key: str) -> Path:
        return self._objects / check_key(key)

    def _link(self, temporary: Path, target: Path, key: str) -> None:
        with _translated("write", target):
            for attempt in range(1, LINK_ATTEMPTS + 1):
                try:
                    _make_directory(target.parent)
                    _hard_link(temporary, target, key)
                    break
                except FileNotFoundError:
                    if attempt == LINK_ATTEMPTS:
                        raise
            _sync_directory(target.parent)


class _Writer:
    """The temporary file; its errors name the object that a person knows."""

    def __init__(self, descriptor: int, target: Path) -> None:
        self._file = os.fdopen(descriptor, "wb", BUFFER_BYTES)
        self._target = target

    def write(self, data: bytes) -> int:
        with _translated("write", self._target):
            return self._file.write(data)

    def sync(self) -> None:
        with _translated("write", self._target):
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        with suppress(OSError):  # what could not be flushed has failed in `sync` or is unwanted
            self._file.close()


class _Range(io.RawIOBase):
    """The bytes [start, end) of a file, as a stream of their own."""

    def __init__(self, path: Path, start: int, end: int | None) -> None:
        self._file = path.open("rb", buffering=0)
        self._file.seek(start)
        self._left = None if end is None else max(0, end - start)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        wanted = len(buffer) if self._left is None else min(len(buffer), self._left)
        count = self._file.readinto(memoryview(buffer)[:wanted]) or 0
        if self._left is not None:
            self._left -= count
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


@contextmanager
def _translated(verb: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as failed:
        reason = failed.strerror or str(failed)
        raise StoreError(f"The object store cannot {verb} {path}: {reason}.") from failed


@contextmanager
def _existing(key: str) -> Iterator[None]:
    try:
        yield
    except StoreError as failed:
        if isinstance(failed.__cause__, FileNotFoundError | NotADirectoryError):
            raise ObjectMissingError(f"No object {key} in the store.") from None
        raise


def _hard_link(temporary: Path, target: Path, key: str) -> None:
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise ObjectExistsError(f"The object {key} exists already.") from None


def _make_directory(path: Path) -> None:
    if path.is_dir():
        return
    _make_directory(path.parent)
    with suppress(FileExistsError):  # and if it is gone again, what needs it finds out
        path.mkdir()
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    """Make new names in the directory survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _walk(directory: Path, prefix: str) -> Iterator[str]:
    """Keys below `directory` in the order of the whole key, not name by name."""
    try:
        entries = [(entry.name, entry.is_dir()) for entry in os.scandir(directory)]
    except (FileNotFoundError, NotADirectoryError):
        return
    for name, is_directory in sorted(
        entries, key=lambda entry: f"{entry[0]}/" if entry[1] else entry[0]
    ):
        if is_directory:
            yield from _walk(directory / name, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}"
