"""An object store in this process's memory, for tests."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from batchjobs.errors import ObjectExistsError, ObjectMissingError
from batchjobs.store.base import ObjectWriter
from batchjobs.store.layout import check_key, check_prefix


class MemoryStore:
    """Lives and dies with the process."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}
        self._created: dict[str, float] = {}
        self._lock = threading.Lock()

    def put(self, key: str, data: bytes) -> None:
        with self.create(key) as writer:
            writer.write(data)

    @contextmanager
    def create(self, key: str) -> Iterator[ObjectWriter]:
        check_key(key)
        buffer = io.BytesIO()
        yield buffer
        with self._lock:
            if key in self._objects:
                raise ObjectExistsError(f"The object {key} exists already.")
            self._objects[key] = buffer.getvalue()
            self._created[key] = time.monotonic()

    def open(self, key: str, *, start: int = 0, end: int | None = None) -> BinaryIO:
        return io.BytesIO(self._get(key)[start:end])

    def size(self, key: str) -> int:
        return len(self._get(key))

    def list(self, prefix: str) -> Iterator[str]:
        check_prefix(prefix)
        yield from sorted(key for key in tuple(self._objects) if key.startswith(prefix))

    def list_older(self, prefix: str, seconds: float) -> Iterator[str]:
        latest = time.monotonic() - seconds
        for key in self.list(prefix):
            if self._created.get(key, latest) <= latest:
                yield key

    def delete(self, key: str) -> None:
        self._objects.pop(check_key(key), None)
        self._created.pop(key, None)

    def locate(self, key: str) -> str:
        return f"memory:{check_key(key)}"

    def _get(self, key: str) -> bytes:
        try:
            return self._objects[check_key(key)]
        except KeyError:
            raise ObjectMissingError(f"No object {key} in the store.") from None

    def sweep(self) -> None:
        pass  # writers die with the store
