from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from batchjobs.outlook import (
    Habit,
    LiveWorker,
    OpenJob,
    Outlook,
    Share,
    estimate_remaining_tokens,
    foresee,
)
from batchjobs.queue.tallies import Tally

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)
FAST = LiveWorker(loaded_model="m", tokens_per_second=10)
NEW = LiveWorker()


def open_job(
    name: str, tokens: float | None = 600, *, model: str = "m", hours: float = 24
) -> OpenJob:
    return OpenJob(
        id=name,
        created_at=NOW,
        expires_at=NOW + hours * HOUR,
        shares=(Share(model=model, lines=3, tokens=tokens),),
    )


def seconds(outlook: Outlook) -> float | None:
    return None if outlook.eta is None else (outlook.eta - NOW).total_seconds()


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        pytest.param([FAST], [60, 120], id="one worker does one job after the other"),
        pytest.param([FAST, FAST], [30, 60], id="workers of a model add up"),
        pytest.param([NEW], [None, None], id="nobody has loaded it yet"),
        pytest.param([], [None, None], id="nobody is there"),
        pytest.param(
            [replace(FAST, tokens_per_second=None)], [None, None], id="loaded, not measured"
        ),
        pytest.param([replace(FAST, loaded_model="x")], [None, None], id="another model is loaded"),
        pytest.param(
            [FAST, replace(FAST, job_id="b")], [60, 60], id="a job's own worker does not queue"
        ),
        pytest.param(
            [FAST, replace(FAST, job_id="b", tokens_per_second=5)],
            [60, 80],
            id="shared workers help a job's own when they come",
        ),
        pytest.param(
            [FAST, replace(FAST, job_id="a")], [30, 60 + 30], id="one's own worker helps the next"
        ),
    ],
)
def test_eta_comes_of_the_work_ahead_and_the_workers_rates(
    workers: list[LiveWorker], expected: list[float | None]
) -> None:
    found = foresee([open_job("a"), open_job("b")], workers, NOW)
    assert [seconds(found["a"]), seconds(found["b"])] == expected


def test_jobs_of_other_models_are_not_waited_for() -> None:
    other = replace(FAST, loaded_model="x")
    found = foresee([open_job("a"), open_job("b", model="x")], [FAST, other], NOW)
    assert [seconds(found["a"]), seconds(found["b"])] == [60, 60]


def test_job_behind_one_of_unknown_size_has_no_eta() -> None:
    found = foresee([open_job("a", None), open_job("b")], [FAST], NOW)
    assert found == {"a": Outlook(), "b": Outlook()}


def test_job_of_several_models_ends_with_its_slowest() -> None:
    shares = (
        Share(model="m", lines=1, tokens=100),
        Share(model="x", lines=1, tokens=900),
        Share(model="done", lines=0, tokens=0),
    )
    mixed = replace(open_job("a"), shares=shares)
    workers = [FAST, replace(FAST, loaded_model="x")]
    assert seconds(foresee([mixed], workers, NOW)["a"]) == 90
    assert seconds(foresee([mixed], [FAST], NOW)["a"]) is None


@pytest.mark.parametrize(
    ("tokens", "workers", "hours_left", "at_risk"),
    [
        pytest.param(35_000, [FAST], 1, False, id="ends before the deadline"),
        pytest.param(37_000, [FAST], 1, True, id="ends behind the deadline"),
        pytest.param(None, [FAST], 3, False, id="unknown, and time is left"),
        pytest.param(None, [FAST], 2.4, True, id="unknown in the last tenth of the window"),
        pytest.param(600, [], 3, False, id="nobody serves it, and time is left"),
        pytest.param(600, [], 2.4, True, id="nobody serves it in the last tenth"),
    ],
)
def test_job_is_at_risk_before_its_deadline(
    tokens: float | None, workers: list[LiveWorker], hours_left: float, at_risk: bool
) -> None:
    job = open_job("a", tokens)
    now = job.expires_at - hours_left * HOUR
    assert foresee([job], workers, now)["a"].at_risk is at_risk


def test_job_behind_more_work_than_its_window_has_is_at_risk_although_its_size_is_unknown() -> None:
    jobs = [open_job("a", 40_000), open_job("b", None, hours=1)]
    found = foresee(jobs, [FAST], NOW)["b"]
    assert (found.eta, found.at_risk) == (None, True)


def test_validating_job_is_at_risk_in_the_last_tenth_of_its_window() -> None:
    job = replace(open_job("a"), shares=())
    assert foresee([job], [], NOW)["a"] == Outlook()
    assert foresee([job], [], NOW + 22 * HOUR)["a"] == Outlook(at_risk=True)


@pytest.mark.parametrize(
    ("worker", "serves"),
    [
        (LiveWorker(), True),
        (LiveWorker(models=frozenset({"a b", "x"})), True),
        (LiveWorker(models=frozenset({"x"})), False),
        (LiveWorker(job_id="a"), True),
        (LiveWorker(job_id="another"), False),
        (LiveWorker(loaded_model="x"), True),
    ],
)
def test_notice_tells_that_no_live_worker_serves_the_model(
    worker: LiveWorker, serves: bool
) -> None:
    notice = foresee([open_job("a", model="a b")], [worker], NOW)["a"].notice
    expected = (
        "No live worker serves the model 'a b'; start one with: batchjobs worker --model 'a b'"
    )
    assert notice == (None if serves else expected)


def test_notice_names_all_models_that_are_not_served_and_have_lines_left() -> None:
    shares = [Share(model=name, lines=lines, tokens=1) for name, lines in (("x", 1), ("y", 2))]
    done = Share(model="done", lines=0, tokens=0)
    job = replace(open_job("a"), shares=(*shares, done))
    assert foresee([job], [], NOW)["a"].notice == (
        "No live worker serves the models 'x', 'y';"
        " start one with: batchjobs worker --model x --model y"
    )


HABIT = Habit(prompt_tokens_per_byte=0.5, completion_tokens_per_line=3)
DONE = Tally(completed=3, failed=1, prompt_tokens=40, completion_tokens=80, input_bytes=400)


@pytest.mark.parametrize(
    ("done", "habit", "expected"),
    [
        (DONE, None, 600 * 0.1 + 6 * 20),
        (DONE, HABIT, 600 * 0.1 + 6 * 20),
        (Tally(), HABIT, 1000 * 0.5 + 10 * 3),
        (Tally(), None, None),
        (Tally(failed=1, input_bytes=100), HABIT, 900 * 0.5 + 9 * 3),
        (Tally(failed=1, input_bytes=100), None, None),
    ],
)
def test_remaining_tokens_follow_the_answered_lines_or_else_the_models_habit(
    done: Tally, habit: Habit | None, expected: float | None
) -> None:
    found = estimate_remaining_tokens(done, total_lines=10, total_bytes=1000, habit=habit)
    assert found == expected
