"""A job as it is at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from batchjobs.cli.exits import Exit

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from batchjobs.deployment import Deployment
    from batchjobs.models import Job, JobError
    from batchjobs.outlook import Outlook
    from batchjobs.queue.jobs import Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """Read in one transaction, so that its numbers belong together."""

    job: Job
    tally: Tally
    errors: Sequence[JobError]
    outlook: Outlook

    @property
    def is_terminal(self) -> bool:
        from batchjobs.states import TERMINAL

        return self.job.status in TERMINAL

    @property
    def finished_lines(self) -> int:
        return self.tally.completed + self.tally.failed

    @property
    def exit_code(self) -> Exit:
        """What a command that waited for the job ends with."""
        from batchjobs.states import JobState

        match self.job.status:
            case JobState.COMPLETED:
                return Exit.FAILED_LINES if self.tally.failed else Exit.DONE
            case JobState.FAILED:
                return Exit.INVALID
            case JobState.CANCELLED | JobState.EXPIRED:
                return Exit.ENDED_EARLY
        return Exit.INTERRUPTED

    def wire(self) -> dict[str, Any]:
        from batchjobs import wire

        return wire.batch_object(self.job, self.tally, self.errors, self.outlook)


def view_job(deployment: Deployment, job_id: str) -> JobView:
    """Raises NotFoundError."""
    from batchjobs.forecast import look_ahead
    from batchjobs.queue import jobs

    with deployment.database.read() as session:
        return _view(session, jobs.get(session, job_id), look_ahead(session, deployment))


def view_page(
    deployment: Deployment, *, limit: int, after: str | None = None
) -> tuple[list[JobView], bool]:
    """Jobs, newest first, and whether more follow. Raises NotFoundError for an unknown `after`."""
    from batchjobs.forecast import look_ahead
    from batchjobs.queue import jobs

    with deployment.database.read() as session:
        found, has_more = jobs.page(session, limit=limit, after=after)
        outlooks = look_ahead(session, deployment)
        return [_view(session, job, outlooks) for job in found], has_more


def _view(session: Session, job: Job, outlooks: Mapping[str, Outlook]) -> JobView:
    from batchjobs.outlook import NOTHING_AHEAD
    from batchjobs.queue import jobs

    return JobView(
        job=job,
        tally=jobs.tally(session, job),
        errors=jobs.errors(session, job.id),
        outlook=outlooks.get(job.id, NOTHING_AHEAD),
    )
