"""What the exit code of a command says. docs/cli.md repeats it for people."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    DONE = 0
    """The command did what it was asked; of a job: every line has an answer."""
    ERROR = 1
    """It could not: no such job, no model, no disk space, …"""
    USAGE = 2
    """The command line or a setting is wrong."""
    FAILED_LINES = 3
    """The job is completed, and the error file has lines of it."""
    INVALID = 4
    """The file failed validation; nothing ran."""
    INTERRUPTED = 5
    """Stopped before the end; what is finished is kept and `batchjobs resume` goes on."""
    ENDED_EARLY = 6
    """The job was cancelled or its completion window closed; finished lines are published."""
    HUNG = 7
    """The engine made no step for too long and was ended; the job can be resumed."""
    WORSE = 8
    """A run of an eval suite is surely worse than the baseline."""
    NO_VERDICT = 9
    """A run of an eval suite cannot be compared with the baseline, or there is none."""
