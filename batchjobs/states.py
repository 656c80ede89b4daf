"""The states of a job and of a shard, what each means, and which may follow which."""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    """On the wire this is the batch's `status`."""

    VALIDATING = "validating"
    """Created; intake reads the input file. Set by `queue.jobs.create`."""
    FAILED = "failed"
    """Intake found bad lines (all listed in `errors`); nothing ran. Terminal."""
    IN_PROGRESS = "in_progress"
    """Shards exist; workers claim them. Set by `queue.jobs.start`."""
    FINALIZING = "finalizing"
    """No shard is claimed any more; results are put in order. `Job.ending` says which state
    follows. A job whose window closes while it is still validating comes here too."""
    COMPLETED = "completed"
    """Every line has a result, even if each is an error. Terminal."""
    EXPIRED = "expired"
    """The completion window closed first; finished lines are published. Terminal."""
    CANCELLING = "cancelling"
    """Cancel was asked; no shard is claimed any more, running ones stop. Then finalized."""
    CANCELLED = "cancelled"
    """Finished lines are published, the rest are `batch_cancelled`. Terminal."""


JOB_NEXT: dict[JobState, frozenset[JobState]] = {
    JobState.VALIDATING: frozenset(
        {JobState.FAILED, JobState.IN_PROGRESS, JobState.FINALIZING, JobState.CANCELLING}
    ),
    JobState.IN_PROGRESS: frozenset({JobState.FINALIZING, JobState.CANCELLING}),
    JobState.FINALIZING: frozenset({JobState.COMPLETED, JobState.EXPIRED}),
    JobState.CANCELLING: frozenset({JobState.CANCELLED}),
    JobState.FAILED: frozenset(),
    JobState.COMPLETED: frozenset(),
    JobState.EXPIRED: frozenset(),
    JobState.CANCELLED: frozenset(),
}

TERMINAL = frozenset(state for state, following in JOB_NEXT.items() if not following)


class ShardState(StrEnum):
    QUEUED = "queued"
    """Waits to be claimed. Set by intake, by a release and by a rescue."""
    RUNNING = "running"
    """Claimed: `owner` holds it under `fence` until `lease_until`."""
    DONE = "done"
    """Every line of it has a committed result. Terminal."""
    CLOSED = "closed"
    """Its job was cancelled or expired before every line had a result. Terminal."""


class Outcome(StrEnum):
    """Where a line ended: `completed` is in the output file, the others in the error file."""

    COMPLETED = "completed"
    FAILED = "failed"
