"""The requests of a run as jobs, each submitted once whatever dies in between.

| when a process dies | then |
|---|---|
| before the run's row is there | nothing has happened |
| while its files are submitted | the run is `submitting`; who goes on with it submits the rest |
| while a judge's file is submitted | the run is `answering` still; who goes on finds the job |

What has been submitted is told by the jobs: their metadata name the run and the part of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

from batchjobs.client.base import Order
from batchjobs.client.batch import Batch
from batchjobs.errors import BatchJobsError, InvalidRequestError
from batchjobs.evals import runs
from batchjobs.evals.runs import METADATA_PART, METADATA_RUN, METADATA_SUITE
from batchjobs.evals.states import RunState
from batchjobs.evals.submission import RequestFiles
from batchjobs.evals.tables import EvalRun
from batchjobs.evals.workplace import DEFAULT_WINDOW, Workplace

JOBS_A_PAGE = 100
CLOCKS_APART_SECONDS = 3600
"""A server's clock may be so much behind the one by which the run's row was made."""


@contextmanager
def submitting(place: Workplace, run_id: str) -> Iterator[bool]:
    """Whether nobody else submits for this run."""
    with place.deployment.database.alone(f"submit-{run_id}") as is_alone:
        yield is_alone


def submit_answers(
    place: Workplace, run: EvalRun, files: RequestFiles, *, is_taken_on: bool = False
) -> None:
    """Submit the files of a run that is `submitting`, which then is `answering`.

    A refusal makes a failed run without open jobs, and is raised. What is broken elsewhere (server,
    store, database) is raised and leaves the run to be taken on.
    """
    begun = begun_jobs(place, run) if is_taken_on else {}
    try:
        ids = _submit_files(place, run, files, "answers", begun)
    except InvalidRequestError as refused:
        abandon(place, run, f"its requests were refused: {refused.message}")
        raise
    _move(place, run, RunState.ANSWERING, {"jobs": {**run.jobs, "answers": ids}})


def submit_judge(place: Workplace, run: EvalRun, metric: str, files: RequestFiles) -> list[str]:
    """The ids of the jobs in which a judge grades, those among them that a process which died has
    begun."""
    return _submit_files(place, run, files, f"judge {metric}", begun_jobs(place, run))


def abandon(place: Workplace, run: EvalRun, reason: str) -> None:
    """Make a run that is not wholly submitted a failed one, and cancel what it has submitted."""
    _move(place, run, RunState.FAILED, {"reason": reason, "plan_key": None})
    for job_id in begun_jobs(place, run).values():
        with suppress(BatchJobsError):  # it is the reason that matters
            place.client.cancel(job_id)
    if run.plan_key is not None:
        place.deployment.store.delete(run.plan_key)


def begun_jobs(place: Workplace, run: EvalRun) -> dict[str, str]:
    """The jobs that say they are of this run, by the part of it that they are."""
    return {
        batch.metadata[METADATA_PART]: batch.id
        for batch in _jobs_since(place, run.created_at.timestamp() - CLOCKS_APART_SECONDS)
        if batch.metadata.get(METADATA_RUN) == run.id and METADATA_PART in batch.metadata
    }


def _move(place: Workplace, run: EvalRun, to: RunState, values: Mapping[str, Any]) -> None:
    """A run that is `submitting`; nothing if it is not any more."""
    place.deployment.database.transact(
        lambda session: runs.move(
            session,
            place.deployment.clock,
            run.id,
            of=RunState.SUBMITTING,
            to=to,
            values=values,
        )
    )


def _jobs_since(place: Workplace, moment: float) -> Iterator[Batch]:
    after: str | None = None
    while True:
        page = place.client.page(limit=JOBS_A_PAGE, after=after)
        for batch in page.batches:
            if batch.created_at < moment:
                return
            yield batch
        if not page.has_more:
            return
        after = page.batches[-1].id


def _submit_files(
    place: Workplace, run: EvalRun, files: RequestFiles, name: str, begun: Mapping[str, str]
) -> list[str]:
    ids = []
    for number, stream in enumerate(files.streams(), start=1):
        part = f"{name} {number}"
        ids.append(begun.get(part) or _submit(place, run, files.url, part, stream))
    return ids


def _submit(place: Workplace, run: EvalRun, url: str, part: str, stream: BinaryIO) -> str:
    terms = run.terms or {}
    asked = Order(
        filename=f"{run.suite}-{run.id}-{part.replace(' ', '-')}.jsonl",
        endpoint=url,
        window=terms.get("window", DEFAULT_WINDOW),
        metadata={METADATA_SUITE: run.suite, METADATA_RUN: run.id, METADATA_PART: part},
        priority=terms.get("priority", 0),
    )
    return place.client.submit(stream, asked).id
