"""Jobs as a person looks for them: by status and by words, page by page, newest first."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self

from sqlalchemy import ColumnElement, Select, Text, and_, cast, func, or_, select, tuple_
from sqlalchemy.orm import Session

from batchjobs.models import File, Job
from batchjobs.queue import tallies
from batchjobs.queue.tallies import Tally
from batchjobs.states import JobState

MAX_WORDS = 8
"""More words of a search are not looked for."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MAX_MICROSECONDS = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a job stands in the list, whether or not it is still there."""

    created_at: datetime
    job_id: str

    @classmethod
    def of(cls, job: Job) -> Self:
        return cls(created_at=job.created_at, job_id=job.id)

    @classmethod
    def read(cls, text: str) -> Self | None:
        """What `str` gave; None if it is something else."""
        moment, _, job_id = text.partition("-")
        if not (moment.isascii() and moment.isdigit() and job_id):
            return None
        if int(moment[:20]) > _MAX_MICROSECONDS:
            return None
        return cls(created_at=_EPOCH + int(moment) * _MICROSECOND, job_id=job_id)

    def __str__(self) -> str:
        return f"{(self.created_at - _EPOCH) // _MICROSECOND}-{self.job_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Jobs of one tenant, or of all; in these states, or in any; with each of the words in their
    id, their file's name, their models or their metadata."""

    tenant: str | None = None
    states: Collection[JobState] = ()
    words: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """`filename` is the input file's, if it is still there."""

    job: Job
    tally: Tally
    filename: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsPage:
    jobs: tuple[Listed, ...]
    has_newer: bool
    has_older: bool


def page(
    session: Session,
    wanted: Wanted,
    *,
    limit: int,
    older_than: Place | None = None,
    newer_than: Place | None = None,
) -> JobsPage:
    """At most `limit` jobs next to a place, or the newest."""
    position = tuple_(Job.created_at, Job.id)
    query = _select(wanted).limit(limit + 1)
    if newer_than is not None:
        query = query.where(position > tuple_(newer_than.created_at, newer_than.job_id))
        rows = list(session.execute(query.order_by(Job.created_at, Job.id)))
        has_more, rows = len(rows) > limit, rows[:limit][::-1]
        has_newer, has_older = has_more, True
    else:
        if older_than is not None:
            query = query.where(position < tuple_(older_than.created_at, older_than.job_id))
        rows = list(session.execute(query.order_by(Job.created_at.desc(), Job.id.desc())))
        has_newer, has_older, rows = older_than is not None, len(rows) > limit, rows[:limit]
    counted = tallies.tallies(session, [job for job, _ in rows])
    return JobsPage(
        jobs=tuple(
            Listed(job=job, tally=counted[job.id], filename=filename) for job, filename in rows
        ),
        has_newer=has_newer,
        has_older=has_older,
    )


def named(session: Session, job_ids: Collection[str], *, tenant: str) -> dict[str, Job]:
    """Those of these jobs that are still there, by id."""
    query = select(Job).where(Job.id.in_(job_ids), Job.tenant == tenant)
    return {job.id: job for job in session.scalars(query)}


def find(session: Session, job: Job) -> Listed:
    """One job as the list has it."""
    filename = session.scalar(
        select(File.filename).where(File.id == job.input_file_id, File.tenant == job.tenant)
    )
    return Listed(job=job, tally=tallies.tally(session, job), filename=filename)


def count(session: Session, tenant: str | None = None) -> dict[JobState, int]:
    """Jobs by state; states without any are left out."""
    query = select(Job.status, func.count()).group_by(Job.status)
    if tenant is not None:
        query = query.where(Job.tenant == tenant)
    numbers: dict[JobState, int] = {}
    for status, number in session.execute(query):
        numbers[status] = number
    return numbers


def _select(wanted: Wanted) -> Select[Job, str | None]:
    # Another tenant's file, which a job may name in vain, has no name here.
    query = select(Job, File.filename).outerjoin(
        File, and_(File.id == Job.input_file_id, File.tenant == Job.tenant)
    )
    if wanted.tenant is not None:
        query = query.where(Job.tenant == wanted.tenant)
    if wanted.states:
        query = query.where(Job.status.in_(wanted.states))
    return query.where(*(_has(word) for word in wanted.words[:MAX_WORDS]))


def _has(word: str) -> ColumnElement[bool]:
    in_json = json.dumps(word)[1:-1]
    return or_(
        Job.id.icontains(word, autoescape=True),
        File.filename.icontains(word, autoescape=True),
        cast(Job.models, Text).icontains(in_json, autoescape=True),
        cast(Job.job_metadata, Text).icontains(in_json, autoescape=True),
    )
