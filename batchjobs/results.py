"""The results of a job so far, line by line in the order of its file, while it runs and after.

A reader that comes back gives the last line up to which it has everything, and is sent what lies
behind it: nothing is missed, and what was finished out of order may come twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from typing import BinaryIO

import orjson

from batchjobs.ahead import read_ahead
from batchjobs.deployment import Deployment
from batchjobs.errors import IntegrityError, ObjectMissingError
from batchjobs.files import get_file, open_file
from batchjobs.ids import line_digest
from batchjobs.models import Job
from batchjobs.parts import READ_AHEAD, Result, in_line_order, read_part
from batchjobs.queue import claims, jobs
from batchjobs.queue.claims import ShardFacts
from batchjobs.states import TERMINAL, ShardState
from batchjobs.store.base import ObjectStore

MAX_BLANK_LINES = 10_000_000
"""So many input lines on end without a result are damage, not blank lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsSoFar:
    """`lines` are those of the output and the error file. All input lines up to `last_line` are
    among them, or were behind an earlier offset; the job is at its end if `is_complete`."""

    is_complete: bool
    last_line: int
    lines: Iterator[bytes]


def results_so_far(
    deployment: Deployment, job_id: str, *, offset: int = 0, tenant: str | None = None
) -> ResultsSoFar:
    """What is finished of the input lines behind line number `offset`.

    Raises:
        NotFoundError: no such job, or a result file of it has been deleted.
    """
    with deployment.database.read() as session:
        job = jobs.get(session, job_id, tenant=tenant)
        shards = [] if job.status in TERMINAL else claims.shards(session, job_id)
    if job.status in TERMINAL:
        lines = _published(deployment, job, offset)
        return ResultsSoFar(is_complete=True, last_line=job.total_lines, lines=lines)
    try:
        last_line = _last_line(deployment.store, job, shards)
    except ObjectMissingError:  # it has ended in the meantime, and its parts are gone
        if not _has_ended(deployment, job_id):
            raise
        return results_so_far(deployment, job_id, offset=offset, tenant=tenant)
    lines = _unpublished(deployment, job_id, shards, offset)
    return ResultsSoFar(is_complete=False, last_line=last_line, lines=lines)


def _last_line(store: ObjectStore, job: Job, shards: Sequence[ShardFacts]) -> int:
    """A line up to which every line has a result."""
    last = job.total_lines
    for shard in shards:
        if shard.state != ShardState.DONE and shard.work.first_line <= last:
            finished = {result.line for part in shard.parts for result in read_part(store, part)}
            unfinished = next(n for n in count(shard.work.first_line) if n not in finished)
            last = min(last, unfinished - 1)
    return last


def _unpublished(
    deployment: Deployment, job_id: str, shards: Sequence[ShardFacts], offset: int
) -> Iterator[bytes]:
    sent = offset
    unseen = _reaching_behind(offset, shards)
    try:
        for result in in_line_order(unseen, _read(deployment.store, unseen)):
            if result.line > sent:
                sent = result.line
                yield result.data
    except ObjectMissingError:
        if not _has_ended(deployment, job_id):
            raise
        with deployment.database.read() as session:
            job = jobs.get(session, job_id)
        yield from _published(deployment, job, sent)


def _read(store: ObjectStore, shards: Sequence[ShardFacts]) -> Iterator[list[Result]]:
    """What is finished of each shard."""

    def read(shard: ShardFacts) -> list[Result]:
        return [result for part in shard.parts for result in read_part(store, part)]

    return read_ahead(read, shards, most=READ_AHEAD)


def _reaching_behind(offset: int, shards: Sequence[ShardFacts]) -> list[ShardFacts]:
    """The shards that may have lines behind `offset`."""
    return [shard for shard in shards if shard.work.last_line > offset]


def _has_ended(deployment: Deployment, job_id: str) -> bool:
    with deployment.database.read() as session:
        return jobs.get(session, job_id).status in TERMINAL


def _published(deployment: Deployment, job: Job, offset: int) -> Iterator[bytes]:
    """The lines of both result files in one order. Opens them at once, and reads them later."""
    with ExitStack() as opening:
        streams = [
            opening.enter_context(_open(deployment, file_id))
            for file_id in (job.output_file_id, job.error_file_id)
            if file_id is not None
        ]
        return _merged(job, streams, opening.pop_all(), offset)


def _open(deployment: Deployment, file_id: str) -> BinaryIO:
    with deployment.database.read() as session:
        file = get_file(session, file_id)
    return open_file(deployment.store, file)


def _merged(
    job: Job, streams: Sequence[BinaryIO], opened: ExitStack, offset: int
) -> Iterator[bytes]:
    """The id of a result tells its line: it is derived from the line's number."""
    with opened:
        heads: dict[str, tuple[bytes, BinaryIO]] = {}
        for stream in streams:
            _advance(heads, stream)
        blank = 0
        for number in count(1):
            if not heads:
                return
            head = heads.pop(f"batch_req_{line_digest(job.id, number)}", None)
            if head is None:
                blank += 1
                if blank > MAX_BLANK_LINES:
                    raise IntegrityError(f"The result files of {job.id} are of another job.")
                continue
            blank = 0
            line, stream = head
            _advance(heads, stream)
            if number > offset:
                yield line


def _advance(heads: dict[str, tuple[bytes, BinaryIO]], stream: BinaryIO) -> None:
    if line := stream.readline():
        heads[orjson.loads(line)["id"]] = (line, stream)
