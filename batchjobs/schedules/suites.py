"""What a schedule asks of eval suites: to begin a run, and to say how far it is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from batchjobs.deployment import Deployment

if TYPE_CHECKING:
    from batchjobs.evals.workplace import Workplace

WORSE = "worse"
NO_VERDICT = "no verdict"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Of one run. `word` and `sentence` are its verdict, once it has one."""

    suite: str
    is_ended: bool
    word: str | None = None
    sentence: str | None = None
    failure: str | None = None
    """Why it failed."""


class Suites(Protocol):
    def find(self, night: str, path: str) -> str | None:
        """The run of this suite that was begun for this night before."""

    def start(self, path: str, *, model: str | None, deadline: datetime | None, night: str) -> str:
        """The id of a new run; runs of one `night` are judged together. Raises BatchJobsError."""

    def look(self, run_id: str, *, deadline: datetime | None) -> Progress:
        """Take the run as far as it goes now, its jobs due by the deadline."""

    def cancel(self, run_id: str) -> None:
        """End its jobs. Nothing happens to a run that has ended."""


class EvalSuites:
    """The suites of `batchjobs.evals`, answered by this deployment's workers.

    Its imports are inside: who has no suites need not load the statistics.
    """

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment

    def find(self, night: str, path: str) -> str | None:
        from batchjobs.evals import runs

        with self._deployment.database.read() as session:
            begun = runs.of_night(session, night)
        return next((run.id for run in begun if run.suite_path == path), None)

    def start(self, path: str, *, model: str | None, deadline: datetime | None, night: str) -> str:
        from batchjobs.evals.starting import start

        return start(self._deployment, Path(path), model=model, deadline=deadline, night=night)

    def look(self, run_id: str, *, deadline: datetime | None) -> Progress:
        from batchjobs.evals.finishing import finish
        from batchjobs.evals.states import ENDED

        run = finish(self._deployment, run_id)
        if deadline is not None:
            self._hasten(run_id, deadline)
        verdict = run.verdict or {}
        return Progress(
            suite=run.suite,
            is_ended=run.state in ENDED,
            word=run.word,
            sentence=verdict.get("sentence"),
            failure=run.reason,
        )

    def cancel(self, run_id: str) -> None:
        from batchjobs.evals.finishing import load
        from batchjobs.evals.states import RunState
        from batchjobs.evals.submitting import abandon
        from batchjobs.queue import jobs

        run = load(self._deployment, run_id)
        if run.state == RunState.SUBMITTING:
            abandon(self._place(), run, "cancelled before all its requests were submitted")
        ids = self._open_jobs(run_id)
        self._deployment.database.transact(
            lambda session: jobs.cancel_open(session, self._deployment.clock, ids)
        )

    def _hasten(self, run_id: str, deadline: datetime) -> None:
        """Also jobs that came later: the judges', and those of a run that confirms."""
        from batchjobs.queue import jobs

        ids = self._open_jobs(run_id)
        if ids:
            self._deployment.database.transact(
                lambda session: jobs.set_deadline(session, ids, deadline)
            )

    def _open_jobs(self, run_id: str) -> list[str]:
        from batchjobs.evals.finishing import load, open_jobs

        return open_jobs(self._place(), load(self._deployment, run_id))

    def _place(self) -> Workplace:
        from batchjobs.client.embedded import EmbeddedClient
        from batchjobs.evals.workplace import Workplace

        return Workplace(deployment=self._deployment, client=EmbeddedClient(self._deployment))
