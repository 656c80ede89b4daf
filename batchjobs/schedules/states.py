"""What a schedule may say of its slots, and the states of a slot."""

from __future__ import annotations

from enum import StrEnum


class Overlap(StrEnum):
    """What happens to a slot while an earlier one of its schedule runs."""

    SKIP = "skip"
    """It is recorded as skipped."""
    QUEUE = "queue"
    """It waits for the earlier one; at most one waits, others are skipped."""
    REPLACE = "replace"
    """The earlier one is cancelled."""


class SlotKind(StrEnum):
    CRON = "cron"
    MANUAL = "manual"
    """A person asked for it; its time is when they did."""


class SlotState(StrEnum):
    WAITING = "waiting"
    """It is due, and nothing of it has been started. Set by a tick, for one slot once."""
    RUNNING = "running"
    """Its job or runs are under way."""
    DONE = "done"
    """Its job is completed, or every run of it has ended with a verdict. Terminal."""
    FAILED = "failed"
    """It could not be started, or its job or a run of it failed; `reason` says why. Terminal."""
    MISSED = "missed"
    """Nobody was there when it was due, and it is too old, or a newer one is due. Terminal."""
    SKIPPED = "skipped"
    """An earlier one was still running, or waiting. Terminal."""
    REPLACED = "replaced"
    """It was cancelled for a later one. Terminal."""


SLOT_NEXT: dict[SlotState, frozenset[SlotState]] = {
    SlotState.WAITING: frozenset(
        {SlotState.RUNNING, SlotState.FAILED, SlotState.SKIPPED, SlotState.REPLACED}
    ),
    SlotState.RUNNING: frozenset({SlotState.DONE, SlotState.FAILED, SlotState.REPLACED}),
    SlotState.DONE: frozenset(),
    SlotState.FAILED: frozenset(),
    SlotState.MISSED: frozenset(),
    SlotState.SKIPPED: frozenset(),
    SlotState.REPLACED: frozenset(),
}

OPEN = frozenset(state for state, following in SLOT_NEXT.items() if following)


class Health(StrEnum):
    """How the last slot ended that came to an end: what a recovery is measured against."""

    OK = "ok"
    ALARM = "alarm"
    """A suite is worse, by a confirmed verdict."""
    NO_VERDICT = "no_verdict"
    FAILED = "failed"
