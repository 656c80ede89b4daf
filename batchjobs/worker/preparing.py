"""From lines to engine requests: the prompts of lines that follow each other are encoded together.

A line that cannot run has its own error and leaves the others be.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass

from batchjobs.endpoints.base import Draft, ModelContext
from batchjobs.endpoints.drafts import encode_together
from batchjobs.errors import BatchJobsError
from batchjobs.worker.line_work import LineWork
from executor.request import Request

LINES_TOGETHER = 32
BYTES_TOGETHER = 1 << 20
"""Of lines that are encoded together; for a moment memory holds up to a hundred times as much."""


@dataclass(frozen=True, slots=True)
class PreparedLine:
    """A line and the engine requests that answer it, or why there are none."""

    work: LineWork
    requests: Sequence[Request] = ()
    error: BatchJobsError | None = None


def prepared(works: Iterable[LineWork]) -> Generator[PreparedLine]:
    """The lines in order; all run on the same model."""
    for together in _batches(works):
        yield from _prepare(together)


def _batches(works: Iterable[LineWork]) -> Iterator[list[LineWork]]:
    batch: list[LineWork] = []
    size = 0
    for work in works:
        if batch and (len(batch) == LINES_TOGETHER or size + work.line.size > BYTES_TOGETHER):
            yield batch
            batch, size = [], 0
        batch.append(work)
        size += work.line.size
    if batch:
        yield batch


def _prepare(works: Sequence[LineWork]) -> Iterator[PreparedLine]:
    read = [(work, _read(work)) for work in works]
    drafts = [draft for _, draft in read if isinstance(draft, Draft)]
    encoded = iter(_encode(drafts, works[0].model))
    for work, draft in read:
        if isinstance(draft, Draft):
            yield _finish(work, draft, next(encoded))
        else:
            yield PreparedLine(work, error=draft)


def _read(work: LineWork) -> Draft | BatchJobsError:
    try:
        return work.draft()
    except BatchJobsError as error:
        return error


def _encode(drafts: Sequence[Draft], model: ModelContext) -> Sequence[list[list[int]] | None]:
    """None for each if together they cannot be encoded: alone, the line whose fault it is fails."""
    try:
        return encode_together(drafts, model)
    except Exception:
        return [None] * len(drafts)


def _finish(work: LineWork, draft: Draft, encoded: Sequence[list[int]] | None) -> PreparedLine:
    try:
        return PreparedLine(work, work.requests(draft, encoded))
    except BatchJobsError as error:
        return PreparedLine(work, error=error)
