"""kill -9 over an eval: submitted once, answered once, and scored as if nothing had happened."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from batchjobs import intake
from batchjobs.deployment import Deployment
from batchjobs.evals import history, runs
from batchjobs.evals.finishing import load
from batchjobs.evals.outcomes import ItemOutcome
from batchjobs.evals.states import RunState
from batchjobs.evals.tables import EvalRun
from batchjobs.evals.workplace import Workplace
from batchjobs.models import Part
from batchjobs.queue import jobs
from batchjobs.schedules.desk import Desk
from batchjobs.schedules.firing import tick
from batchjobs.schedules.orders import ScheduleOrder
from batchjobs.settings import Settings
from batchjobs.worker.runner import run_jobs
from batchjobs.worker.stop import StopSignal
from tests.support.api import running_server, service_worker
from tests.support.engines import FakeEngines, add_models
from tests.support.evals import (
    MODEL,
    place_of,
    rows,
    run_suite,
    see_through,
    start_suite,
    write_suite,
)
from tests.support.jobs import open_deployment
from tests.support.processes import ROOT, environment_of, python
from tests.unit.schedules.nights import slots_of

ITEMS = 10
JUDGE = {"type": "judge", "model": MODEL, "prompt": "{{ answer_text }}", "pattern": r"\d"}
SCORERS = [{"type": "numeric", "target": "{{ n }}"}, {**JUDGE, "grades": {"1": 1, "0": 0}}]

DIES = """
import os, sys
from pathlib import Path
from batchjobs.evals import finishing, runs, submitting
from tests.support import evals
from tests.support.jobs import open_deployment

home, what, owner, name, calls = sys.argv[1:]
place = {"runs": runs, "submitting": submitting, "finishing": finishing}[owner]
function, left = getattr(place, name), [int(calls)]

def countdown(*args, **kwargs):
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), 9)
    return function(*args, **kwargs)

setattr(place, name, countdown)
with open_deployment(Path(home), max_requests_per_batch=4) as deployment:
    here = evals.place_of(deployment)
    if what == "tick":
        from batchjobs.schedules.firing import tick
        tick(deployment)
    else:
        evals.see_through(here, evals.start_suite(here, Path(what), takes_on=True))
"""

POINTS = {
    "before its row": ("runs", "add", 0),
    "between two jobs": ("submitting", "_submit", 1),
    "before the jobs are noted": ("runs", "move", 0),
    "between two judges": ("submitting", "_submit", 4),
    "before its scores are kept": ("runs", "add_marks", 0),
}
JOBS = 6
"""Three that answer, four lines each, and three that judge."""


def die(home: Path, what: str, point: str) -> int:
    owner, name, calls = POINTS[point]
    return subprocess.run(
        [sys.executable, "-c", DIES, str(home), what, owner, name, str(calls)],
        check=False,
        timeout=60,
        cwd=ROOT,
    ).returncode


def every_run(deployment: Deployment) -> list[EvalRun]:
    with deployment.database.read() as session:
        return list(runs.page(session, limit=100)[0])


def count_jobs(deployment: Deployment) -> int:
    with deployment.database.read() as session:
        return len(jobs.page(session, limit=100)[0])


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workplace]:
    with open_deployment(tmp_path / "home", max_requests_per_batch=4) as deployment:
        add_models(deployment, MODEL)
        yield place_of(deployment)


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_command_is_taken_on_without_a_job_too_many(
    place: Workplace, tmp_path: Path, point: str
) -> None:
    path = write_suite(tmp_path, rows(ITEMS), scorers=SCORERS)
    assert die(tmp_path / "home", str(path), point) == -signal.SIGKILL
    left = every_run(place.deployment)
    if left and left[0].state != RunState.SUBMITTING:
        [ended] = [see_through(place, run.id) for run in left]  # `evals resume`
    else:
        ended = run_suite(place, path, takes_on=True)  # the same command
    assert [run.id for run in every_run(place.deployment)] == [ended.id]
    assert ended.state == RunState.FINISHED
    assert (count_jobs(place.deployment), len(runs.jobs_of(ended))) == (JOBS, JOBS)
    assert ended.scores is not None
    assert (ended.scores["numeric"]["mean"], ended.scores["numeric"]["scored"]) == (1, ITEMS)


def test_a_slot_whose_process_is_killed_has_one_run(place: Workplace, tmp_path: Path) -> None:
    path = write_suite(tmp_path, rows(ITEMS))
    deployment = place.deployment
    Desk(deployment).add(ScheduleOrder(name="nightly", cron="0 2 * * *", suites=[str(path)]))
    Desk(deployment).run("nightly")
    assert die(tmp_path / "home", "tick", "between two jobs") == -signal.SIGKILL
    for _ in range(2):
        tick(deployment)
    [run] = every_run(deployment)
    see_through(place, run.id)
    tick(deployment)
    [slot] = slots_of(deployment)
    assert (slot["status"], [one["id"] for one in slot["runs"]]) == ("done", [run.id])
    assert count_jobs(deployment) == 3


LINES = 60
WAIT_SECONDS = 180
EAGER = {
    "checkpoint_seconds": "0.05",
    "shard_max_lines": "16",
    "lease_seconds": "2",
    "poll_seconds": "0.1",
    "log_level": "warning",
}
COMMAND = """
import sys
from batchjobs.cli import cli
from batchjobs.worker import engines
from tests.support.engines import FakeEngines
from tests.support.service_worker import _brake

engines.CheckpointEngines = lambda settings: (_brake(settings), FakeEngines())[1]
cli(sys.argv[1:], prog_name="batchjobs")
"""


def garbled_suite(folder: Path) -> Path:
    """Of made-up answers, whose letters make their score."""
    own = "def score(fields, answer):\n    return sum(answer.encode()) % 11 / 10\n"
    (folder / "own.py").write_text(own)
    sampling = {"temperature": 1, "max_tokens": 24, "seed": 5}
    request = {"endpoint": "completions", "prompt": "{{ n }} or", "sampling": sampling}
    return write_suite(
        folder,
        rows(LINES),
        request={**request, "body": {"ignore_eos": True}, "truncated": "score"},
        scorers=[{"type": "python", "file": "own.py"}],
    )


@contextmanager
def command(home: Path, *arguments: str, **settings: str) -> Iterator[subprocess.Popen[str]]:
    """A command whose engine is made up; it is dead when the context ends."""
    environment = environment_of(home, {**EAGER, **settings})
    with python("-c", COMMAND, *arguments, environment=environment) as process:
        yield process


def ends_well(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The run's object. A run without a baseline ends with 9."""
    said, complained = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 9, complained
    found: dict[str, Any] = json.loads(said)
    return found


def outcomes(home: Path, run_id: str) -> list[ItemOutcome]:
    with Deployment.open(Settings.load(home=home)) as deployment:
        with deployment.database.read() as session:
            found = history.scored_run(session, load(deployment, run_id))
        assert count_jobs(deployment) <= 1
    return list(found.outcomes)


def count_parts(home: Path) -> int:
    with (
        Deployment.open(Settings.load(home=home)) as deployment,
        deployment.database.read() as session,
    ):
        return session.scalar(select(func.count()).select_from(Part)) or 0


def eventually(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)


def new_home(home: Path, *, is_slow: bool = False) -> Path:
    with Deployment.open(Settings.load(home=home)) as deployment:
        add_models(deployment, MODEL)
    if is_slow:
        (home / "slowly").touch()
    return home


@pytest.fixture
def undisturbed(tmp_path: Path) -> tuple[Path, list[ItemOutcome]]:
    """A suite, and what its answers come to."""
    path, home = garbled_suite(tmp_path), new_home(tmp_path / "whole")
    with Deployment.open(Settings.load(home=home)) as deployment:
        place = place_of(deployment)
        run_id = start_suite(place, path)
        [job] = load(deployment, run_id).jobs["answers"]
        intake.validate(deployment, job)
        stop = StopSignal(grace_seconds=60, forced_exit=9)
        run_jobs(deployment, job_id=job, engines=FakeEngines(), stop=stop)
        see_through(place, run_id)
    return path, outcomes(home, run_id)


def test_a_command_killed_in_the_middle_goes_on_to_the_same_scores(
    tmp_path: Path, undisturbed: tuple[Path, list[ItemOutcome]]
) -> None:
    path, whole = undisturbed
    home = new_home(tmp_path / "home", is_slow=True)
    with command(home, "evals", "run", str(path), "--wait") as process:
        assert process.stdout is not None
        run_id = process.stdout.readline().strip()
        eventually(lambda: count_parts(home) >= 2)
        assert process.poll() is None, "it ended before the kill"
    (home / "slowly").unlink()
    with command(home, "evals", "resume", run_id, "--json") as process:
        assert ends_well(process)["id"] == run_id
    assert outcomes(home, run_id) == whole
    assert len({one.score for one in whole}) > 3


@pytest.mark.slow
def test_worker_and_waiting_command_killed_beside_a_server_lose_nothing(
    tmp_path: Path, undisturbed: tuple[Path, list[ItemOutcome]]
) -> None:
    path, whole = undisturbed
    there = new_home(tmp_path / "there", is_slow=True)
    here = tmp_path / "here"
    with ExitStack() as stack:
        server = stack.enter_context(running_server(there, **EAGER))
        worker = stack.enter_context(service_worker(there, "fake", **EAGER))
        with command(here, "evals", "run", str(path), "--wait", url=server.url) as process:
            assert process.stdout is not None
            run_id = process.stdout.readline().strip()
            eventually(lambda: count_parts(there) >= 2)
            os.kill(worker.pid, signal.SIGKILL)
        (there / "slowly").unlink()
        stack.enter_context(service_worker(there, "fake", **EAGER))
        with command(here, "evals", "resume", run_id, "--json", url=server.url) as process:
            assert ends_well(process)["id"] == run_id
    assert outcomes(here, run_id) == whole
    with Deployment.open(Settings.load(home=there)) as deployment:
        assert count_jobs(deployment) == 1
