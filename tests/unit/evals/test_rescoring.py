"""Answers that are scored again, by a suite whose scorers or right answers were wrong."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from batchjobs import intake
from batchjobs.errors import ConflictError
from batchjobs.evals import history, pins, trends
from batchjobs.evals.finishing import advance, load
from batchjobs.evals.rescoring import Rescoring, pinned_beside
from batchjobs.evals.states import RunState
from batchjobs.evals.tables import EvalRun
from batchjobs.evals.workplace import Workplace
from batchjobs.queue import jobs
from batchjobs.worker.runner import run_jobs
from batchjobs.worker.stop import StopSignal
from tests.support.engines import FakeEngines
from tests.support.evals import answer_job, rows, run_suite, see_through, start_suite, write_suite
from tests.support.jobs import clock_of

ITEMS = 40
TOO_STRICT = [{"type": "exact", "target": "{{ n }}."}]
MENDED = [{"type": "exact", "target": "{{ n }}"}]


def rescore(place: Workplace, *run_ids: str) -> list[EvalRun]:
    """The new runs at their ends."""
    rescoring = Rescoring(place)
    begun = [rescoring.begin(run_id) for run_id in run_ids]
    return [see_through(place, run_id) for run_id in begun]


def mean(run: EvalRun) -> Any:
    assert run.scores is not None
    return run.scores[run.metric]["mean"]


def count_jobs(place: Workplace) -> int:
    with place.deployment.database.read() as session:
        return len(jobs.page(session, limit=1000)[0])


def pin(place: Workplace, *chosen: EvalRun) -> None:
    place.deployment.database.transact(
        lambda session: pins.pin(session, place.deployment.clock, [run.id for run in chosen])
    )


def test_answers_are_scored_again_without_the_model(place: Workplace, tmp_path: Path) -> None:
    first = run_suite(place, write_suite(tmp_path, rows(ITEMS), scorers=TOO_STRICT))
    assert mean(first) == 0
    write_suite(tmp_path, rows(ITEMS), scorers=MENDED)
    [again] = rescore(place, first.id)
    assert (again.id != first.id, again.rescores, mean(again)) == (True, first.id, 1)
    assert (count_jobs(place), again.jobs["answers"]) == (1, [])
    assert mean(load(place.deployment, first.id)) == 0
    with place.deployment.database.read() as session:
        [record] = history.answers_of(session, place.deployment.store, again, ["item-7"])["item-7"]
    assert (record.text, record.marks["exact"]["score"]) == ("7", 1)


def test_what_was_scored_otherwise_is_not_compared(place: Workplace, tmp_path: Path) -> None:
    path = write_suite(tmp_path, rows(ITEMS), scorers=TOO_STRICT)
    pinned, later = run_suite(place, path), run_suite(place, path)
    pin(place, pinned)
    write_suite(tmp_path, rows(ITEMS), scorers=MENDED)
    [alone] = rescore(place, later.id)
    assert alone.word == "no verdict"
    assert "differ in scorer" in alone.verdict["why"]  # type: ignore[index]
    assert pinned_beside(place, [later.id]) == [[pinned.id]]
    [baseline] = rescore(place, pinned.id)
    pin(place, baseline)
    assert run_suite(place, path).word == "ok"


def test_curves_have_the_last_word_at_the_time_of_the_answers(
    place: Workplace, tmp_path: Path
) -> None:
    path = write_suite(tmp_path, rows(ITEMS), scorers=TOO_STRICT)
    clock = clock_of(place.deployment)
    first = run_suite(place, path)
    clock.advance(timedelta(days=1))
    second = run_suite(place, path)
    write_suite(tmp_path, rows(ITEMS), scorers=MENDED)
    clock.advance(timedelta(days=1))
    [later] = rescore(place, second.id)
    clock.advance(timedelta(days=1))
    [earlier] = rescore(place, first.id)
    with place.deployment.database.read() as session:
        newest = trends.newest_scored(session, "numbers", "tiny")
        assert newest is not None
        found = trends.alike(session, newest)
        [standing] = trends.standings(session)
        at = [point.at for point in trends.points(session, newest, found)]
    assert [run.id for run in found] == [later.id, earlier.id]
    assert at == [run.created_at.timestamp() for run in (first, second)]
    assert [run.id for run in standing.recent] == [later.id, earlier.id]


def test_a_right_answer_that_was_wrong_is_mended(place: Workplace, tmp_path: Path) -> None:
    wrong = [{**row, "right": 0} for row in rows(4)]
    scorers = [{"type": "exact", "target": "{{ right }}"}]
    first = run_suite(place, write_suite(tmp_path, wrong, scorers=scorers))
    assert mean(first) == 0.25
    write_suite(tmp_path, [{**row, "right": row["n"]} for row in wrong], scorers=scorers)
    [again] = rescore(place, first.id)
    assert mean(again) == 1
    assert again.conditions["items"] != first.conditions["items"]


def test_a_suite_that_asks_otherwise_is_refused(place: Workplace, tmp_path: Path) -> None:
    first = run_suite(place, write_suite(tmp_path, rows(3)))
    for items, changes in (
        (rows(4), {}),
        (rows(3), {"request": {"endpoint": "completions", "prompt": "{{ n }}?"}}),
        (rows(3), {"repeats": 2}),
    ):
        write_suite(tmp_path, items, scorers=MENDED, **changes)
        with pytest.raises(ConflictError, match="these answers are to other questions"):
            Rescoring(place).begin(first.id)
    kept = [key for key in place.deployment.store.list("evals/") if first.id not in key]
    assert kept == []


def test_scoring_again_by_the_same_scorers_is_refused_and_twice_is_once(
    place: Workplace, tmp_path: Path
) -> None:
    first = run_suite(place, write_suite(tmp_path, rows(3), scorers=TOO_STRICT))
    with pytest.raises(ConflictError, match="would change nothing"):
        Rescoring(place).begin(first.id)
    write_suite(tmp_path, rows(3), scorers=MENDED)
    [again] = rescore(place, first.id)
    assert Rescoring(place).begin(first.id) == Rescoring(place).begin(again.id) == again.id


def test_a_confirmed_alarm_is_judged_again_with_its_second_run(
    place: Workplace, tmp_path: Path
) -> None:
    path = write_suite(tmp_path, rows(ITEMS))
    pinned = run_suite(place, path)
    pin(place, pinned)
    worse = run_suite(place, path, lambda text: text if int(text) > 19 else "none")
    assert worse.word == "no verdict"  # unparsed is not wrong
    alarm = run_suite(place, path, lambda text: text if int(text) > 19 else "1000")
    assert alarm.word == "worse"
    write_suite(tmp_path, rows(ITEMS), scorers=[{"type": "exact", "target": "{{ n }}"}])
    [baseline] = rescore(place, pinned.id)
    pin(place, baseline)
    before = count_jobs(place)
    [again] = rescore(place, alarm.id)
    assert (again.word, again.verdict["is_confirmed"]) == ("worse", True)  # type: ignore[index]
    [unconfirmed] = rescore(place, worse.id)
    assert unconfirmed.word == "no verdict"
    assert "only a new run of the suite can tell" in str(unconfirmed.verdict)
    assert count_jobs(place) == before


def test_a_judges_words_are_read_again_unless_it_is_asked_otherwise(
    place: Workplace, tmp_path: Path
) -> None:
    judge = {"type": "judge", "model": "judge", "prompt": "{{ answer_text }}?", "pattern": "(B)AD"}
    path = write_suite(tmp_path, rows(3), scorers=[judge])
    run_id = start_suite(place, path)
    answer_job(place.deployment, load(place.deployment, run_id).jobs["answers"][0])
    [asked] = advance(place, run_id).jobs["judges"]["judge"]
    answer_job(place.deployment, asked, lambda text: "GOOD" if "1" in text else "BAD")
    first = see_through(place, run_id)
    assert first.scores is not None
    assert first.scores["judge"]["missing"] == {"judge_failed": 3}

    read_well = {**judge, "pattern": "GOOD|BAD", "grades": {"GOOD": 1, "BAD": 0}}
    write_suite(tmp_path, rows(3), scorers=[read_well])
    before = count_jobs(place)
    [again] = rescore(place, run_id)
    assert (mean(again), count_jobs(place)) == (pytest.approx(1 / 3), before)

    write_suite(tmp_path, rows(3), scorers=[{**read_well, "prompt": "Is {{ answer_text }} good?"}])
    new = Rescoring(place).begin(run_id)
    judging = advance(place, new)
    assert (judging.state, count_jobs(place)) == (RunState.JUDGING, before + 1)
    answer_job(place.deployment, judging.jobs["judges"]["judge"][0], lambda text: "GOOD")
    assert mean(see_through(place, new)) == 1


def test_likelihoods_are_kept_to_be_scored_again(place: Workplace, tmp_path: Path) -> None:
    request = {"endpoint": "completions", "prompt": "{{ n }}", "choices": ["one", "two"]}
    path = write_suite(
        tmp_path, rows(2), request=request, scorers=[{"type": "choice", "gold": "0"}]
    )
    run_id = start_suite(place, path)
    [job] = load(place.deployment, run_id).jobs["answers"]
    intake.validate(place.deployment, job)
    stop = StopSignal(grace_seconds=60, forced_exit=9)
    run_jobs(place.deployment, job_id=job, engines=FakeEngines(), stop=stop)
    first = see_through(place, run_id)
    write_suite(tmp_path, rows(2), request=request, scorers=[{"type": "choice", "gold": "1"}])
    [again] = rescore(place, first.id)
    with place.deployment.database.read() as session:
        margins = [
            [one.score for one in history.scored_run(session, run, "margin").outcomes]
            for run in (first, again)
        ]
    assert margins[0] == [-margin for margin in margins[1]]  # type: ignore[operator]


def test_answers_without_the_likelihoods_asked_for_make_a_failed_run(
    place: Workplace, tmp_path: Path
) -> None:
    request = {"endpoint": "completions", "prompt": "{{ n }}", "choices": ["one", "two"]}
    path = write_suite(
        tmp_path, rows(2), request=request, scorers=[{"type": "choice", "gold": "0"}]
    )
    run = run_suite(place, path)
    assert run.state == RunState.FAILED
    assert "log-probabilities of 0 choices where 2 were asked about" in str(run.reason)
