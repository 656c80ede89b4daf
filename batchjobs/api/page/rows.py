"""Jobs as the page shows them: facts and outlook → what is said of each, and in which tone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from batchjobs.api.page.words import line
from batchjobs.forecast import Forecast
from batchjobs.models import Job
from batchjobs.outlook import NOTHING_AHEAD, Outlook
from batchjobs.queue.listing import Listed
from batchjobs.queue.tallies import Tally
from batchjobs.states import JOB_NEXT, TERMINAL, JobState

_RUNNING = (JobState.VALIDATING, JobState.IN_PROGRESS)
_TONES = {
    JobState.COMPLETED: "good",
    JobState.FAILED: "bad",
    JobState.EXPIRED: "warn",
    JobState.CANCELLED: "quiet",
    JobState.CANCELLING: "quiet",
}
_STEPS = (
    ("validated", "in_progress_at"),
    ("cancel asked for", "cancelling_at"),
    ("finalizing", "finalizing_at"),
    ("completed", "completed_at"),
    ("failed validation", "failed_at"),
    ("expired", "expired_at"),
    ("cancelled", "cancelled_at"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """What is to be expected of open jobs, by id."""

    outlooks: Mapping[str, Outlook]
    rates: Mapping[str, float]

    @classmethod
    def of(cls, forecast: Forecast) -> Self:
        """Raises DatabaseError."""
        return cls(outlooks=forecast.outlooks(), rates=forecast.rates())


NO_AHEAD = Ahead(outlooks={}, rates={})


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A moment in a job's life, and how many seconds after the one before."""

    word: str
    at: datetime
    after_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """`rate` is in tokens a second: over the last minute of a job that runs, over the whole of one
    that has ended; None while it is unknown."""

    job: Job
    name: str
    tally: Tally
    outlook: Outlook
    rate: float | None

    @classmethod
    def of(cls, listed: Listed, ahead: Ahead) -> Self:
        job = listed.job
        is_running = job.status in _RUNNING
        return cls(
            job=job,
            name=line(listed.filename or "") or job.input_file_id,
            tally=listed.tally,
            outlook=ahead.outlooks.get(job.id, NOTHING_AHEAD) if is_running else NOTHING_AHEAD,
            rate=ahead.rates.get(job.id) if is_running else _overall_rate(job, listed.tally),
        )

    @property
    def word(self) -> str:
        """The state, for a person."""
        if self.job.status == JobState.IN_PROGRESS and self.outlook.notice:
            return "waiting"
        return self.job.status.replace("_", " ")

    @property
    def tone(self) -> str:
        if self.outlook.at_risk or (self.word == "waiting"):
            return "warn"
        if (
            self.job.status == JobState.COMPLETED
            and not self.tally.completed
            and self.job.total_lines
        ):
            return "bad"
        return _TONES.get(self.job.status, "live")

    @property
    def done(self) -> int:
        return self.tally.completed + self.tally.failed

    @property
    def share(self) -> float:
        return self.done / self.job.total_lines if self.job.total_lines else 0.0

    @property
    def failed_share(self) -> float:
        return self.tally.failed / self.job.total_lines if self.job.total_lines else 0.0

    @property
    def is_open(self) -> bool:
        return self.job.status not in TERMINAL

    @property
    def can_cancel(self) -> bool:
        return JobState.CANCELLING in JOB_NEXT[self.job.status]

    @property
    def can_retry(self) -> bool:
        """Whether lines are left without an answer that a new job could bring."""
        status = self.job.status
        return not self.is_open and status != JobState.FAILED and self.not_answered > 0

    @property
    def not_answered(self) -> int:
        """Lines that failed; of a job that has ended, those too that were never run."""
        return self.tally.failed if self.is_open else self.job.total_lines - self.tally.completed

    @property
    def models(self) -> str:
        return ", ".join(self.job.models or ())

    @property
    def ended_at(self) -> datetime | None:
        job = self.job
        return job.completed_at or job.failed_at or job.expired_at or job.cancelled_at

    @property
    def took_seconds(self) -> float | None:
        """From its creation to its end."""
        ended = self.ended_at
        return None if ended is None else (ended - self.job.created_at).total_seconds()

    @property
    def timeline(self) -> list[Step]:
        return list(_timeline(self.job))


def _timeline(job: Job) -> Iterator[Step]:
    yield Step(word="created", at=job.created_at, after_seconds=None)
    moments = [(moment, word) for word, name in _STEPS if (moment := getattr(job, name))]
    before = job.created_at
    for moment, word in sorted(moments, key=lambda pair: pair[0]):
        yield Step(word=word, at=moment, after_seconds=(moment - before).total_seconds())
        before = moment


def _overall_rate(job: Job, tally: Tally) -> float | None:
    until = job.finalizing_at or job.cancelling_at
    if job.in_progress_at is None or until is None:
        return None
    seconds = (until - job.in_progress_at).total_seconds()
    tokens = tally.prompt_tokens + tally.completion_tokens
    return tokens / seconds if seconds > 0 and tokens else None
