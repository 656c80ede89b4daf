"""The states of a run of a suite, what each means, and which may follow which."""

from __future__ import annotations

from enum import StrEnum


class RunState(StrEnum):
    SUBMITTING = "submitting"
    """Its requests are being submitted, or a process died over it. Set with its row, before there
    is any job."""
    ANSWERING = "answering"
    """Its jobs are under way. Set when all are submitted."""
    JUDGING = "judging"
    """Its answers are there, and judges' jobs are under way."""
    SCORED = "scored"
    """It has its scores. Its verdict waits for the runs that are judged with it, or for another
    run of the suite that is to confirm that it is worse."""
    FINISHED = "finished"
    """It is scored and has its verdict, also if that is none. Terminal."""
    FAILED = "failed"
    """A job of it could not be run or its answers could not be scored; `reason` says why.
    Terminal."""


RUN_NEXT: dict[RunState, frozenset[RunState]] = {
    RunState.SUBMITTING: frozenset({RunState.ANSWERING, RunState.FAILED}),
    RunState.ANSWERING: frozenset({RunState.JUDGING, RunState.SCORED, RunState.FAILED}),
    RunState.JUDGING: frozenset({RunState.SCORED, RunState.FAILED}),
    RunState.SCORED: frozenset({RunState.FINISHED, RunState.FAILED}),
    RunState.FINISHED: frozenset(),
    RunState.FAILED: frozenset(),
}

UNSCORED = (RunState.SUBMITTING, RunState.ANSWERING, RunState.JUDGING)
"""Those from which a run still comes to scores."""
ENDED = frozenset(state for state, following in RUN_NEXT.items() if not following)


class Purpose(StrEnum):
    """What a run is for. Only the first kind is judged."""

    RUN = "run"
    BASELINE = "baseline"
    """To be pinned."""
    CONFIRMATION = "confirmation"
    """To be judged together with the run that `EvalRun.confirms` names."""
