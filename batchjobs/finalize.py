"""Finalize: from the parts of a job to its output and error files.

The input is read once more beside the parts, so that every line provably ends in exactly one of
the two files, in input order, under its own custom_id. A line without a result, which only a
cancelled or expired job may have, is in the error file. Nothing is published until the numbers
agree; publishing is one transaction, so that of two processes that finalize a job one does, and
the other removes what it wrote.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import timedelta
from itertools import chain
from typing import Any, Self

from sqlalchemy.orm import Session

from batchjobs.ahead import read_ahead
from batchjobs.deployment import Deployment
from batchjobs.errors import IntegrityError, ObjectMissingError
from batchjobs.files import FileWriter, add_row, create_file
from batchjobs.ids import line_digest
from batchjobs.jsonl import dump_line
from batchjobs.manifest import computed_by, write_manifest
from batchjobs.models import File, Job
from batchjobs.parts import READ_AHEAD, Result, in_line_order, read_part
from batchjobs.queue import claims, jobs
from batchjobs.queue.claims import ShardFacts
from batchjobs.queue.tallies import Tally
from batchjobs.shard_lines import ShardLine, read_shard
from batchjobs.states import TERMINAL, JobState, Outcome
from batchjobs.store.base import ObjectStore
from batchjobs.store.layout import file_key, job_prefix
from batchjobs.wire import unrun_line

PURPOSE = "batch_output"

logger = logging.getLogger(__name__)

_UNRUN = {
    JobState.CANCELLED: (
        "batch_cancelled",
        "This request was not executed because the batch was cancelled.",
    ),
    JobState.EXPIRED: (
        "batch_expired",
        "This request could not be executed before the completion window expired.",
    ),
}


def finalize(deployment: Deployment, job_id: str) -> bool:
    """Publish a finalizing or cancelling job and remove its parts. True if this call did.

    Safe to call again, at any time and from two processes at once. For a job in another state it
    does nothing, but removes what a crash may have left of an ended one.

    Raises:
        NotFoundError: no such job.
        IntegrityError: parts are missing, damaged or do not add up; nothing is published.
        StoreError: the store fails; nothing is published.
    """
    job, input_file, shards = deployment.database.transact(lambda session: _close(session, job_id))
    ending = jobs.ending(job)
    published = False
    if ending is not None:
        write_manifest(deployment.store, job, input_file, ending, shards)
        published = _publish_unless_ended(deployment, job, ending, shards)
    if published or job.status in TERMINAL:
        _remove_parts(deployment.store, job_id)
    return published


def _close(session: Session, job_id: str) -> tuple[Job, File | None, list[ShardFacts]]:
    """The job, its input, and its shards as they will stay if it is to be published."""
    # The job first: should it be cancelled now, its shards are closed at the next call.
    job = jobs.get(session, job_id)
    jobs.close_shards(session, job_id)
    return job, session.get(File, job.input_file_id), claims.shards(session, job_id)


def _publish_unless_ended(
    deployment: Deployment, job: Job, ending: JobState, shards: list[ShardFacts]
) -> bool:
    try:
        return _publish(deployment, job, ending, shards)
    except (IntegrityError, ObjectMissingError) as failed:
        with deployment.database.read() as session:
            if jobs.get(session, job.id).status in TERMINAL:
                return False  # the process that was first has removed the parts under us
        if isinstance(failed, ObjectMissingError):
            raise IntegrityError(f"Results of {job.id} are lost: {failed}") from failed
        raise


def _publish(deployment: Deployment, job: Job, ending: JobState, shards: list[ShardFacts]) -> bool:
    files = _Files(deployment.store)
    try:
        with files:
            for result in _merge(deployment.store, shards, ending):
                files.add(result)
            tally = _tally(job, shards, files.counts)
    except BaseException:
        files.discard()
        raise
    published = _commit(deployment, job, files, tally, computed_by(shards))
    if not published:
        files.discard()
        return False
    ids = {"job_id": job.id}
    logger.info(
        "Job %s: %d lines answered, %d not", ending, tally.completed, tally.failed, extra=ids
    )
    return True


def _commit(
    deployment: Deployment, job: Job, files: _Files, tally: Tally, fingerprints: list[str]
) -> bool:
    output, errors = files.output, files.errors
    seconds = job.output_expires_seconds
    expires_after = None if seconds is None else timedelta(seconds=seconds)

    def publish(session: Session) -> bool:
        published = jobs.publish(
            session,
            deployment.clock,
            job.id,
            output_file_id=output.file_id if output else None,
            error_file_id=errors.file_id if errors else None,
            tally=tally,
            system_fingerprints=fingerprints,
        )
        for written, name in ((output, "output"), (errors, "error")):
            if published and written:
                filename = f"{job.id}_{name}.jsonl"
                add_row(
                    session,
                    deployment.clock,
                    written,
                    filename=filename,
                    purpose=PURPOSE,
                    expires_after=expires_after,
                    tenant=job.tenant,
                )
        return published

    return deployment.database.transact(publish)


class _Files:
    """The output and error file in the making; neither exists before its first line."""

    def __init__(self, store: ObjectStore) -> None:
        self.output: FileWriter | None = None
        self.errors: FileWriter | None = None
        self.counts: Counter[Outcome | None] = Counter()
        self._store = store
        self._open = ExitStack()
        self._last_line = 0

    def __enter__(self) -> Self:
        self._open.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    def add(self, result: Result) -> None:
        if result.line <= self._last_line:
            raise IntegrityError(
                f"Line {result.line} comes after line {self._last_line} in the results."
            )
        self._last_line = result.line
        self.counts[result.outcome] += 1
        self._file_of(result.outcome).write(result.data)

    def discard(self) -> None:
        for written in (self.output, self.errors):
            if written is not None:
                self._store.delete(file_key(written.file_id))

    def _file_of(self, outcome: Outcome | None) -> FileWriter:
        if outcome == Outcome.COMPLETED:
            if self.output is None:
                self.output = self._open.enter_context(create_file(self._store))
            return self.output
        if self.errors is None:
            self.errors = self._open.enter_context(create_file(self._store))
        return self.errors


def _merge(store: ObjectStore, shards: Sequence[ShardFacts], ending: JobState) -> Iterator[Result]:
    """The results of all lines in order."""
    results = read_ahead(lambda shard: _results(store, shard, ending), shards, most=READ_AHEAD)
    return in_line_order(shards, results)


def _results(store: ObjectStore, shard: ShardFacts, ending: JobState) -> list[Result]:
    """One result for each line of the shard."""
    work = shard.work
    found: dict[int, Result] = {}
    for result in chain.from_iterable(read_part(store, part) for part in shard.parts):
        if result.line in found:
            raise IntegrityError(f"Line {result.line} of {work.job_id} has two results.")
        found[result.line] = result
    results = []
    for line in read_shard(store, work):
        if line.number in found:
            result = found.pop(line.number)
        else:
            result = _unrun(work.job_id, line, ending)
        if result.custom_id != line.custom_id:
            raise IntegrityError(f"Line {line.number} of {work.job_id} has another line's result.")
        results.append(result)
    if found:
        raise IntegrityError(
            f"Shard {work.number} of {work.job_id} has a result for line {min(found)}, which is not"
            " one of its lines."
        )
    return results


def _unrun(job_id: str, line: ShardLine, ending: JobState) -> Result:
    if ending not in _UNRUN:
        raise IntegrityError(f"Line {line.number} of {job_id} has no result.")
    code, message = _UNRUN[ending]
    record = unrun_line(line.custom_id, line_digest(job_id, line.number), code, message)
    return Result(line=line.number, outcome=None, custom_id=line.custom_id, data=dump_line(record))


def _tally(job: Job, shards: Iterable[ShardFacts], counts: Counter[Outcome | None]) -> Tally:
    """The final numbers. Raises IntegrityError if lines, parts and job do not agree on them."""
    parts = [part for shard in shards for part in shard.parts]
    completed = sum(part.completed_lines for part in parts)
    failed = sum(part.failed_lines for part in parts)
    found = (counts[Outcome.COMPLETED], counts[Outcome.FAILED], counts.total())
    if found != (completed, failed, job.total_lines):
        raise IntegrityError(
            f"The results of {job.id} do not add up: {found[0]} completed, {found[1]} failed and"
            f" {counts[None]} never run, but its parts say {completed} and {failed}, and it has"
            f" {job.total_lines} lines."
        )
    return Tally(
        completed=completed,
        failed=failed,
        prompt_tokens=sum(part.prompt_tokens for part in parts),
        cached_tokens=sum(part.cached_tokens for part in parts),
        completion_tokens=sum(part.completion_tokens for part in parts),
        reasoning_tokens=sum(part.reasoning_tokens for part in parts),
        input_bytes=sum(part.input_bytes for part in parts),
    )


def _remove_parts(store: ObjectStore, job_id: str) -> None:
    for key in list(store.list(job_prefix(job_id))):
        store.delete(key)
