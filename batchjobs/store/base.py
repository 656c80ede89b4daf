"""What an object store must do. Objects are written once and never change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import BinaryIO, Protocol


class ObjectWriter(Protocol):
    """Bytes of an object in the making; nothing is visible until the context ends well."""

    def write(self, data: bytes) -> object: ...


class ObjectStore(Protocol):
    """Keys are slash-separated paths of ids and numbers of ours (`store.layout`), never user words.

    An object appears whole or not at all, survives a crash once created, and is never replaced.
    """

    def put(self, key: str, data: bytes) -> None:
        """Create the object. Raises ObjectExistsError."""

    def create(self, key: str) -> AbstractContextManager[ObjectWriter]:
        """Create the object from a stream. It appears when the context ends without an
        exception, and leaves no trace otherwise. Raises ObjectExistsError at that end."""

    def open(self, key: str, *, start: int = 0, end: int | None = None) -> BinaryIO:
        """Read bytes [start, end). The caller closes it. Raises ObjectMissingError."""

    def size(self, key: str) -> int:
        """Bytes of the object. Raises ObjectMissingError."""

    def list(self, prefix: str) -> Iterator[str]:
        """The keys that start with `prefix`, in order."""

    def list_older(self, prefix: str, seconds: float) -> Iterator[str]:
        """Those of `list` whose objects have been there for at least so many seconds."""

    def delete(self, key: str) -> None:
        """Remove the object; a missing one is fine."""

    def locate(self, key: str) -> str:
        """Where a person finds the object: a path or a URL without secrets."""

    def sweep(self) -> None:
        """Remove what writers that died have left long ago. Raises StoreError."""
