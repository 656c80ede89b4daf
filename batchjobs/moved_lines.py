"""Lines of an input that run in another order than they lie in: copied together, with their
numbers, into an object of the job."""

from __future__ import annotations

import io
import secrets
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from batchjobs.jsonl import read_lines
from batchjobs.planner import Window, planned_prefix
from batchjobs.store.base import ObjectStore, ObjectWriter
from batchjobs.store.layout import plan_key


class MovedLines:
    """The object in the making; a context at whose end it appears. There is none, and no `key`,
    before the first window or after `discard`. Memory holds one window."""

    def __init__(self, store: ObjectStore, input_key: str, job_id: str) -> None:
        self.key: str | None = None
        self._store = store
        self._input_key = input_key
        self._job_id = job_id
        self._open = ExitStack()
        self._target: ObjectWriter | None = None

    def write(self, window: Window) -> None:
        """Copy the window's lines in its order. Raises StoreError."""
        if self._target is None:
            self.key = plan_key(self._job_id, secrets.token_hex(8))
            self._target = self._open.enter_context(self._store.create(self.key))
        with self._store.open(self._input_key, start=window.start, end=window.end) as stream:
            data = stream.read()
        for line in window.lines:
            raw = io.BytesIO(data[line.start - window.start : line.end - window.start])
            copied = next(read_lines(raw, line.end - line.start, start=line.start))
            self._target.write(planned_prefix(line.line) + (copied.data or b"") + b"\n")

    def discard(self) -> None:
        """Leave nothing of it."""
        if self.key is not None:
            self._open.__exit__(_Discarded, _Discarded(), None)
            self.key, self._target = None, None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open.__exit__(kind, error, traceback)


class _Discarded(Exception):
    """Tells the store that the object is not to be."""
