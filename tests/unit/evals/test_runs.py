"""Runs from a suite file to a verdict, through real jobs."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from batchjobs.errors import ConflictError, InvalidFileError, UsageError
from batchjobs.evals import finishing, history, pins, runs, trends
from batchjobs.evals.comparing import compare_runs
from batchjobs.evals.finishing import advance, finish, load
from batchjobs.evals.outcomes import Missing
from batchjobs.evals.starting import start
from batchjobs.evals.states import Purpose, RunState
from batchjobs.evals.tables import EvalRun
from batchjobs.evals.workplace import Workplace
from batchjobs.files import remove_orphans
from batchjobs.queue import jobs
from tests.support.engines import add_models
from tests.support.evals import (
    Say,
    answer_job,
    rows,
    run_suite,
    see_through,
    start_suite,
    write_suite,
)
from tests.support.jobs import clock_of, load_job


def wrong_below(number: int) -> Say:
    """Says nothing right of the first items."""
    return lambda text: text if int(text) >= number else "1000"


def scores(run: EvalRun) -> dict[str, Any]:
    assert run.scores is not None
    found: dict[str, Any] = run.scores[run.metric]
    return found


def verdict(run: EvalRun) -> dict[str, Any]:
    assert run.verdict is not None
    return run.verdict


def pin(place: Workplace, *chosen: EvalRun) -> None:
    ids = [run.id for run in chosen]
    place.deployment.database.transact(
        lambda session: pins.pin(session, place.deployment.clock, ids)
    )


def test_a_run_is_scored_item_by_item(place: Workplace, tmp_path: Path) -> None:
    say = {"0": "0", "1": "That is 1.", "2": "3", "3": "no idea", "4": ""}
    run = run_suite(place, write_suite(tmp_path, rows(5)), say.__getitem__)
    assert run.state == RunState.FINISHED
    assert scores(run)["mean"] == pytest.approx(2 / 3)
    assert scores(run)["missing"] == {"empty": 1, "unparsed": 1}
    assert scores(run)["tags"]["kind=odd"]["scored"] == 1
    with place.deployment.database.read() as session:
        found = history.scored_run(session, run)
        [record] = history.answers_of(session, place.deployment.store, run, ["item-1"])["item-1"]
    assert [(one.item, one.score, one.missing) for one in found.outcomes] == [
        ("item-0", 1.0, None),
        ("item-1", 1.0, None),
        ("item-2", 0.0, None),
        ("item-3", None, Missing.UNPARSED),
        ("item-4", None, Missing.EMPTY),
    ]
    assert (record.text, record.finish_reason, record.prompt) == ("That is 1.", "stop", "1")
    assert record.marks["numeric"] == {"score": 1.0, "missing": None, "extracted": "1"}
    assert len({record.record[name] for name in ("item_digest", "prompt_digest")}) == 2


def test_a_run_without_a_baseline_has_no_verdict(place: Workplace, tmp_path: Path) -> None:
    run = run_suite(place, write_suite(tmp_path, rows(3)))
    assert (run.word, verdict(run)["why"]) == ("no verdict", "no baseline is pinned")


def test_a_run_like_its_baseline_is_ok(place: Workplace, tmp_path: Path) -> None:
    path = write_suite(tmp_path, rows(40))
    pin(place, *(run_suite(place, path, purpose=Purpose.BASELINE) for _ in range(2)))
    run = run_suite(place, path)
    assert run.word == "ok"
    assert len(verdict(run)["baseline_runs"]) == 2


def test_a_worse_run_is_run_once_more_before_it_is_called_so(
    place: Workplace, tmp_path: Path
) -> None:
    path = write_suite(tmp_path, rows(40))
    pin(place, run_suite(place, path, purpose=Purpose.BASELINE))
    run = run_suite(place, path, wrong_below(20))
    assert run.word == "worse"
    assert verdict(run)["is_confirmed"]
    with place.deployment.database.read() as session:
        rerun = runs.confirmation_of(session, run.id)
    assert rerun is not None
    assert (rerun.purpose, rerun.word) == (Purpose.CONFIRMATION, None)
    assert verdict(run)["runs"] == [run.id, rerun.id]


def test_a_drop_that_the_second_run_does_not_confirm_is_no_alarm(
    place: Workplace, tmp_path: Path
) -> None:
    path = write_suite(tmp_path, rows(40))
    pin(place, run_suite(place, path, purpose=Purpose.BASELINE))
    run_id = start_suite(place, path)
    answer_job(place.deployment, load(place.deployment, run_id).jobs["answers"][0], wrong_below(9))
    assert advance(place, run_id).state == RunState.SCORED
    assert see_through(place, run_id).word == "ok"


def test_a_suite_that_wants_no_second_run_has_none(place: Workplace, tmp_path: Path) -> None:
    path = write_suite(tmp_path, rows(40), confirm=False)
    pin(place, run_suite(place, path, purpose=Purpose.BASELINE))
    run = run_suite(place, path, wrong_below(20))
    assert run.word == "worse"
    with place.deployment.database.read() as session:
        assert runs.confirmation_of(session, run.id) is None


def test_runs_of_one_night_are_judged_together(place: Workplace, tmp_path: Path) -> None:
    paths = [
        write_suite(tmp_path / name, rows(40), suite=name, confirm=False) for name in ("a", "b")
    ]
    for path in paths:
        pin(place, run_suite(place, path, purpose=Purpose.BASELINE))
    first, second = (start_suite(place, path, night="tonight") for path in paths)
    [job] = load(place.deployment, first).jobs["answers"]
    answer_job(place.deployment, job)
    assert advance(place, first).state == RunState.SCORED
    run = see_through(place, second, wrong_below(7))
    assert load(place.deployment, first).word == "ok"
    # Of 7 broken items p is 2^-7, which Holm doubles beside another suite.
    assert run.word == "ok"
    assert verdict(run)["whole"]["p_worse"] == pytest.approx(2**-7)


def test_conditions_that_changed_leave_no_verdict(place: Workplace, tmp_path: Path) -> None:
    path = write_suite(tmp_path, rows(10))
    pin(place, run_suite(place, path, purpose=Purpose.BASELINE))
    changed = write_suite(
        tmp_path, rows(10), scorers=[{"type": "numeric", "target": "{{ n }}", "tolerance": 1}]
    )
    run = run_suite(place, changed)
    assert run.word == "no verdict"
    assert "differ in scorer" in verdict(run)["why"]


def test_several_samples_of_an_item_have_seeds_of_their_own(
    place: Workplace, tmp_path: Path
) -> None:
    path = write_suite(tmp_path, rows(4), repeats=3)
    run = run_suite(place, path)
    assert (run.items, run.samples) == (4, 12)
    with place.deployment.database.read() as session:
        found = history.scored_run(session, run)
    assert [one.sample for one in found.outcomes[:3]] == [0, 1, 2]
    assert {one.cluster for one in found.outcomes[:3]} == {"item-0"}


def test_a_large_run_is_several_jobs(place: Workplace, tmp_path: Path) -> None:
    settings = place.deployment.settings.model_copy(update={"max_requests_per_batch": 4})
    deployment = dataclasses.replace(place.deployment, settings=settings)
    place = dataclasses.replace(place, deployment=deployment)
    run = run_suite(place, write_suite(tmp_path, rows(10)))
    assert len(run.jobs["answers"]) == 3
    assert (scores(run)["mean"], scores(run)["scored"]) == (1.0, 10)


def test_a_judge_grades_in_a_second_job(place: Workplace, tmp_path: Path) -> None:
    judge = {
        "type": "judge",
        "model": "judge",
        "prompt": "{{ n }} or {{ answer_text }}?",
        "pattern": r"GRADE: (\w)",
    }
    path = write_suite(tmp_path, rows(4), scorers=[judge])
    run_id = start_suite(place, path)
    [answers] = load(place.deployment, run_id).jobs["answers"]
    answer_job(place.deployment, answers, lambda text: "" if text == "3" else text)
    judging = advance(place, run_id)
    assert judging.state == RunState.JUDGING
    words = {"0": "GRADE: C", "1": "GRADE: I", "2": "I would rather not."}
    [asked] = judging.jobs["judges"]["judge"]
    assert load_job(place.deployment, asked).total_lines == 0  # still to be validated
    answer_job(
        place.deployment, asked, lambda text: next(word for n, word in words.items() if n in text)
    )
    run = see_through(place, run_id)
    assert scores(run)["mean"] == 0.5
    assert scores(run)["missing"] == {"empty": 1, "judge_failed": 1}


def test_lines_that_expired_are_failed_requests(place: Workplace, tmp_path: Path) -> None:
    run_id = start_suite(place, write_suite(tmp_path, rows(3)), window="1h")
    clock_of(place.deployment).advance(timedelta(hours=2))
    [job] = load(place.deployment, run_id).jobs["answers"]
    answer_job(place.deployment, job)
    run = see_through(place, run_id)
    assert scores(run)["missing"] == {"request_failed": 3}


def test_requests_that_are_refused_make_a_failed_run(place: Workplace, tmp_path: Path) -> None:
    path = write_suite(
        tmp_path,
        rows(2),
        request={"endpoint": "completions", "prompt": "{{ n }}", "body": {"logit_bias": 3}},
    )
    run_id = start_suite(place, path)
    [job] = load(place.deployment, run_id).jobs["answers"]
    with place.deployment.database.write() as session:
        jobs.fail_validation(session, place.deployment.clock, job, [])
    run = advance(place, run_id)
    assert run.state == RunState.FAILED
    assert "refused" in str(run.reason)


def test_two_that_finish_a_run_at_once_score_it_once(
    place: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = start_suite(place, write_suite(tmp_path, rows(3)))
    answer_job(place.deployment, load(place.deployment, run_id).jobs["answers"][0])
    score_run = finishing.score_run

    def interrupted(*given: object) -> object:
        monkeypatch.setattr(finishing, "score_run", score_run)
        advance(place, run_id)
        return score_run(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(finishing, "score_run", interrupted)
    run = advance(place, run_id)
    assert run.state == RunState.FINISHED
    assert list(place.deployment.store.list(f"evals/{run_id}/answers")) == [run.answers_key]


def test_start_and_finish_are_all_that_a_schedule_needs(place: Workplace, tmp_path: Path) -> None:
    deployment = place.deployment
    with deployment.database.read() as session:
        deadline = deployment.clock.now(session) + timedelta(hours=5, minutes=30)
    run_id = start(deployment, write_suite(tmp_path, rows(2)), deadline=deadline)
    assert finish(deployment, run_id).state == RunState.ANSWERING
    [job] = load(deployment, run_id).jobs["answers"]
    assert load_job(deployment, job).completion_window == "5h"
    answer_job(deployment, job)
    assert finish(deployment, run_id).state == RunState.FINISHED


def test_flips_are_listed_with_both_answers(place: Workplace, tmp_path: Path) -> None:
    path = write_suite(tmp_path, rows(6))
    before = run_suite(place, path, wrong_below(1))
    after = run_suite(place, path, lambda text: "9" if text in "34" else text)
    found = compare_runs(place.deployment, before, after)
    assert [(flip.item, flip.is_broken) for flip in found.flips] == [
        ("item-3", True),
        ("item-4", True),
        ("item-0", False),
    ]
    flip, [was], [now] = found.texts[0]
    assert (flip.item, was.text, now.text) == ("item-3", "3", "9")
    odd = compare_runs(place.deployment, before, after, tag="kind=odd")
    assert [flip.item for flip in odd.flips] == ["item-3"]


def test_runs_of_two_suites_are_not_compared(place: Workplace, tmp_path: Path) -> None:
    one = run_suite(place, write_suite(tmp_path / "1", rows(1)))
    other = run_suite(place, write_suite(tmp_path / "2", rows(1), suite="other"))
    with pytest.raises(ConflictError, match=r"runs of two suites, .* and other: choose two of one"):
        compare_runs(place.deployment, one, other)


def test_an_item_that_lost_its_answer_is_a_flip(place: Workplace, tmp_path: Path) -> None:
    path = write_suite(tmp_path, rows(3))
    before, after = run_suite(place, path), run_suite(place, path, lambda text: "")
    found = compare_runs(place.deployment, before, after)
    assert [(flip.before, flip.after) for flip in found.flips] == [(1.0, None)] * 3
    assert found.verdict["word"] == "no verdict"


def test_a_wrong_answer_that_is_none_any_more_is_neither_broken_nor_fixed(
    place: Workplace, tmp_path: Path
) -> None:
    path = write_suite(tmp_path, rows(3))
    before = run_suite(place, path, lambda text: "9" if text == "1" else text)
    after = run_suite(place, path, lambda text: "" if text == "1" else text)
    [flip] = compare_runs(place.deployment, before, after).flips
    assert (flip.item, flip.way, flip.before, flip.after) == ("item-1", "changed", 0.0, None)


def test_only_runs_of_one_suite_and_condition_are_pinned_together(
    place: Workplace, tmp_path: Path
) -> None:
    one = run_suite(place, write_suite(tmp_path / "1", rows(3)))
    other = run_suite(place, write_suite(tmp_path / "2", rows(4)))
    with pytest.raises(ConflictError, match="differ in items, prompts"):
        pin(place, one, other)
    foreign = run_suite(place, write_suite(tmp_path / "3", rows(3), suite="other"))
    with pytest.raises(ConflictError, match="different suites: pin each suite's"):
        pin(place, one, foreign)
    other_model = run_suite(place, write_suite(tmp_path / "1", rows(3)), model="judge")
    with pytest.raises(ConflictError, match=r"\(judge\) are of different models: pin each model's"):
        pin(place, one, other_model)
    unfinished = start_suite(place, write_suite(tmp_path / "4", rows(3)))
    with pytest.raises(ConflictError, match="is not finished"):
        pin(place, load(place.deployment, unfinished))


def test_a_new_pin_takes_the_place_of_the_old(place: Workplace, tmp_path: Path) -> None:
    path = write_suite(tmp_path, rows(3))
    first, second = run_suite(place, path), run_suite(place, path)
    pin(place, first)
    pin(place, second)
    with place.deployment.database.read() as session:
        assert [run.id for run in pins.pinned(session, "numbers")] == [second.id]


def test_each_model_has_a_baseline_of_its_own(place: Workplace, tmp_path: Path) -> None:
    path = write_suite(tmp_path, rows(40))
    good, bad = run_suite(place, path), run_suite(place, path, wrong_below(20), model="judge")
    pin(place, good)
    assert verdict(run_suite(place, path, model="judge"))["against"] == "tiny"
    pin(place, bad)
    with place.deployment.database.read() as session:
        assert pins.counts(session) == {("numbers", "tiny"): 1, ("numbers", "judge"): 1}
        pinned = {one.model: one.pinned for one in trends.standings(session)}
    assert pinned == {"tiny": 1, "judge": 1}
    for model, run in (("tiny", good), ("judge", bad)):
        tonight = run_suite(place, path, wrong_below(20), model=model)
        assert verdict(tonight)["baseline_runs"] == [run.id]
        assert (verdict(tonight)["against"], tonight.word) == (
            None,
            "worse" if model == "tiny" else "ok",
        )


def test_a_model_without_a_baseline_is_measured_by_the_only_one(
    place: Workplace, tmp_path: Path
) -> None:
    path = write_suite(tmp_path, rows(5))
    pin(place, run_suite(place, path))
    foreign = run_suite(place, path, model="judge")
    assert foreign.word == "ok"
    assert verdict(foreign)["sentence"].endswith("; against the baseline of tiny")
    add_models(place.deployment, "third")
    pin(place, foreign)
    between = run_suite(place, path, model="third")
    assert between.word == "no verdict"
    assert verdict(between)["why"] == (
        "no baseline is pinned for the model third, and it is not clear which of those for judge,"
        " tiny it should be measured against"
    )


def test_a_run_is_taken_out_of_its_baseline(place: Workplace, tmp_path: Path) -> None:
    path = write_suite(tmp_path, rows(3))
    first, second = run_suite(place, path), run_suite(place, path)
    pin(place, first, second)
    with place.deployment.database.write() as session:
        pins.unpin(session, place.deployment.clock, [first.id])
    with place.deployment.database.read() as session:
        assert [run.id for run in pins.pinned(session, "numbers")] == [second.id]
    with (
        pytest.raises(ConflictError, match="is not pinned"),
        place.deployment.database.write() as session,
    ):
        pins.unpin(session, place.deployment.clock, [first.id])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "nobody"}, 'There is no model "nobody"; there is: judge, tiny'),
        ({"model": None}, "names no model"),
        ({"model": ["a", "b"]}, "names several models"),
    ],
)
def test_a_run_needs_one_model_that_there_is(
    place: Workplace, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        start_suite(place, write_suite(tmp_path, rows(2), **changes))


def test_a_dataset_that_is_not_the_one_named_is_refused(place: Workplace, tmp_path: Path) -> None:
    path = write_suite(tmp_path, rows(2), dataset={"source": "items.jsonl", "sha256": "0" * 64})
    with pytest.raises(InvalidFileError, match="is another than the suite names"):
        start_suite(place, path)
    assert list(place.deployment.store.list("evals/")) == []


def test_what_a_crash_left_of_a_run_is_removed(place: Workplace, tmp_path: Path) -> None:
    run = run_suite(place, write_suite(tmp_path, rows(2)))
    store = place.deployment.store
    store.put(f"evals/{run.id}/answers-left", b"x")
    store.put("evals/run_gone/plan-1", b"x")
    assert remove_orphans(place.deployment, older_than_seconds=0) >= 2
    assert set(store.list("evals/")) == {run.suite_key, run.answers_key}
