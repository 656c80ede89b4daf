"""Which job goes first."""

from __future__ import annotations

from batchjobs.models import Job

MOST_URGENT_FIRST = (
    Job.due_hour,
    Job.priority.desc(),
    Job.expires_at,
    Job.created_at,
    Job.id,
)
"""Earliest deadline first; what is due within the same hour goes by priority."""
