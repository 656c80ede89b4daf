"""Runs whose requests are not all submitted, as their process died or a server refused them."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchjobs.client.base import Order
from batchjobs.client.embedded import EmbeddedClient
from batchjobs.errors import InvalidFileError, RemoteError
from batchjobs.evals import runs, starting
from batchjobs.evals.finishing import advance, load
from batchjobs.evals.states import RunState
from batchjobs.evals.tables import EvalRun
from batchjobs.evals.workplace import Workplace
from batchjobs.queue import jobs
from batchjobs.states import JobState
from tests.support.evals import MODEL, rows, see_through, start_suite, write_suite
from tests.support.jobs import load_job

LINES_A_JOB = 4


class Frail(EmbeddedClient):
    """Fails when the given number of jobs is submitted."""

    left = 0
    error: BaseException = RemoteError("The server is away.")

    def submit(self, stream: object, order: Order) -> object:  # type: ignore[override]
        if self.left == 0:
            raise self.error
        self.left -= 1
        return super().submit(stream, order)  # type: ignore[arg-type]


@pytest.fixture
def frail(place: Workplace) -> Workplace:
    """Of jobs of a few lines."""
    settings = place.deployment.settings.model_copy(update={"max_requests_per_batch": LINES_A_JOB})
    object.__setattr__(place.deployment, "settings", settings)
    return Workplace(deployment=place.deployment, client=Frail(place.deployment))


def interrupt(place: Workplace, path: Path, *, after: int, **order: object) -> EvalRun:
    """A run whose server is lost after so many of its jobs."""
    assert isinstance(place.client, Frail)
    place.client.left = after
    begun: list[str] = []
    with pytest.raises(RemoteError):
        starting.start_run(
            place,
            starting.read_suite(path),
            starting.RunOrder(**order),  # type: ignore[arg-type]
            begun=begun.append,
        )
    place.client.left = 100
    return load(place.deployment, begun[0])


def jobs_of(place: Workplace) -> list[str]:
    with place.deployment.database.read() as session:
        return sorted(job.id for job in jobs.page(session, limit=100)[0])


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_run_left_half_submitted_goes_on_with_the_jobs_it_has(
    frail: Workplace, tmp_path: Path, after: int
) -> None:
    run = interrupt(frail, write_suite(tmp_path, rows(10)), after=after, window="7h", priority=3)
    assert (run.state, len(jobs_of(frail))) == (RunState.SUBMITTING, after)
    begun = jobs_of(frail)
    ended = see_through(frail, run.id)
    assert ended.scores is not None
    assert (ended.scores["numeric"]["mean"], ended.scores["numeric"]["scored"]) == (1.0, 10)
    assert sorted(ended.jobs["answers"]) == jobs_of(frail)
    assert set(begun) <= set(jobs_of(frail))
    assert len(jobs_of(frail)) == 3
    job = load_job(frail.deployment, ended.jobs["answers"][-1])
    assert (job.completion_window, job.priority) == ("7h", 3)


def test_the_same_command_again_takes_a_left_run_on(frail: Workplace, tmp_path: Path) -> None:
    path = write_suite(tmp_path, rows(10))
    left = interrupt(frail, path, after=1)
    assert start_suite(frail, path, takes_on=True, night="run_tonight") == left.id
    run = load(frail.deployment, left.id)
    assert (run.state, run.night, len(jobs_of(frail))) == (RunState.ANSWERING, "run_tonight", 3)
    assert start_suite(frail, path, takes_on=True) != left.id


def test_a_left_run_of_a_suite_that_changed_is_ended(frail: Workplace, tmp_path: Path) -> None:
    left = interrupt(frail, write_suite(tmp_path, rows(10)), after=2)
    changed = start_suite(frail, write_suite(tmp_path, rows(11)), takes_on=True)
    assert changed != left.id
    ended = load(frail.deployment, left.id)
    assert (ended.state, ended.reason) == (
        RunState.FAILED,
        "interrupted, and begun anew by another suite of the name",
    )
    own = set(load(frail.deployment, changed).jobs["answers"])
    states = {load_job(frail.deployment, job).status for job in set(jobs_of(frail)) - own}
    assert states == {JobState.CANCELLED}


def test_a_left_run_whose_dataset_changed_fails_and_says_so(
    frail: Workplace, tmp_path: Path
) -> None:
    left = interrupt(frail, write_suite(tmp_path, rows(10)), after=1)
    write_suite(tmp_path, rows(11))
    run = advance(frail, left.id)
    assert run.state == RunState.FAILED
    assert "its dataset or examples are others now: start it anew" in str(run.reason)
    [job] = jobs_of(frail)
    assert load_job(frail.deployment, job).status == JobState.CANCELLED


def test_refused_requests_make_a_failed_run_without_open_jobs(
    frail: Workplace, tmp_path: Path
) -> None:
    assert isinstance(frail.client, Frail)
    frail.client.left, frail.client.error = 1, InvalidFileError("Too much.")
    with pytest.raises(InvalidFileError, match="Too much"):
        start_suite(frail, write_suite(tmp_path, rows(10)))
    with frail.deployment.database.read() as session:
        [run] = runs.page(session, limit=10)[0]
    assert (run.state, run.reason) == (
        RunState.FAILED,
        "its requests were refused: Too much.",
    )
    [job] = jobs_of(frail)
    assert load_job(frail.deployment, job).status == JobState.CANCELLED
    assert [key for key in frail.deployment.store.list("evals/") if "plan" in key] == []


def test_a_run_that_somebody_submits_is_left_to_them(frail: Workplace, tmp_path: Path) -> None:
    path = write_suite(tmp_path, rows(10))
    left = interrupt(frail, path, after=1)
    with frail.deployment.database.alone(f"submit-{left.id}") as is_alone:
        assert is_alone
        assert advance(frail, left.id).state == RunState.SUBMITTING
        assert start_suite(frail, path, takes_on=True) != left.id
    assert load(frail.deployment, left.id).model == MODEL
