from __future__ import annotations

from collections.abc import Sequence

import pytest

from batchjobs.evals.outcomes import Missing, ScoredRun
from batchjobs.evals.statistics.scores import score
from batchjobs.evals.statistics.validity import Limits
from batchjobs.evals.statistics.verdict import Case, Word, verdict, verdicts
from tests.unit.evals.statistics.runs import flipped, run


def runs(*, fixed: int, broken: int, items: int = 200) -> tuple[ScoredRun, ScoredRun]:
    new, old = flipped(fixed=fixed, broken=broken, items=items)
    return run("tonight", new), run("pin", old)


def word(*, fixed: int, broken: int, limits: Limits | None = None) -> Word:
    tonight, pinned = runs(fixed=fixed, broken=broken)
    return verdict(tonight, [pinned], limits or Limits()).word


def test_words_follow_the_flips() -> None:
    assert word(fixed=0, broken=0) == Word.OK
    assert word(fixed=6, broken=14) == Word.OK
    assert word(fixed=2, broken=14) == Word.WORSE
    assert word(fixed=14, broken=2) == Word.BETTER


def test_level_is_one_in_a_hundred() -> None:
    assert word(fixed=0, broken=6) == Word.OK
    assert word(fixed=0, broken=7) == Word.WORSE


def test_change_within_the_margin_is_ok() -> None:
    assert word(fixed=0, broken=7, limits=Limits(margin=0.05)) == Word.OK
    assert word(fixed=0, broken=10, limits=Limits(margin=0.05)) == Word.WORSE


def test_worse_is_no_alarm_before_a_second_run() -> None:
    tonight, pinned = runs(fixed=0, broken=12)
    first = verdict(tonight, [pinned], Limits())
    assert (first.word, first.needs_rerun, first.is_alarm) == (Word.WORSE, True, False)
    both = verdict(tonight, [pinned], Limits(), rerun=tonight)
    assert (both.word, both.needs_rerun, both.is_alarm) == (Word.WORSE, False, True)


def test_second_run_that_is_fine_takes_the_alarm_back() -> None:
    """Pooled, seven broken items are half broken, and the baseline is one run: no evidence."""
    tonight, pinned = runs(fixed=0, broken=7)
    both = verdict(tonight, [pinned], Limits(), rerun=pinned)
    assert both.word == Word.OK
    assert both.runs == ("tonight", "pin")


def test_second_run_cannot_alarm_alone() -> None:
    tonight, pinned = runs(fixed=0, broken=5)
    much_worse = run("again", [0.0] * 60 + [1.0] * 140)
    assert verdict(tonight, [pinned], Limits(), rerun=much_worse).word == Word.OK


def test_second_run_that_is_not_valid_gives_no_verdict() -> None:
    tonight, pinned = runs(fixed=0, broken=12)
    outage = run("again", [Missing.REQUEST_FAILED] * 200)
    assert verdict(tonight, [pinned], Limits(), rerun=outage).word == Word.NO_VERDICT


def test_no_verdict_says_why_and_nothing_else() -> None:
    _, pinned = runs(fixed=0, broken=50)
    other = run("tonight", [0.0] * 200, scorer="exact-2")
    found = verdict(other, [pinned], Limits())
    assert found.word == Word.NO_VERDICT
    assert found.sentence == "no verdict (tonight and pin differ in scorer)"
    assert (found.whole, found.flips, found.is_alarm) == (None, (), False)


def test_averaged_baseline_sees_what_one_run_does_not() -> None:
    """Items that are right in most of five runs, and wrong tonight."""
    pins = [
        run(f"pin-{number}", [float((item + number) % 5 > 0) for item in range(10)] + [1.0] * 190)
        for number in range(5)
    ]
    tonight = run("tonight", [0.0] * 10 + [1.0] * 190)
    found = verdict(tonight, pins, Limits())
    assert found.word == Word.WORSE
    assert found.whole is not None
    assert found.whole.baseline == pytest.approx(0.99)
    assert (found.whole.broken, found.whole.effect) == (10, pytest.approx(-0.04))


def test_broken_tag_is_found_in_a_suite_that_holds() -> None:
    def tags(item: int) -> tuple[str, ...]:
        return ("hard",) if item < 40 else ("easy",)

    old = [1.0] * 10 + [0.0] * 30 + [1.0] * 150 + [0.0] * 10
    new = [0.0] * 10 + [0.0] * 30 + [1.0] * 150 + [1.0] * 10
    found = verdict(run("tonight", new, tags=tags), [run("pin", old, tags=tags)], Limits())
    assert found.word == Word.WORSE
    assert found.why == "not as a whole, but in tag hard: -25.0 points, Holm 0.0039"
    assert found.sentence.startswith(f"worse ({found.why}): +0.0 points [")
    assert found.whole is not None
    assert found.whole.effect == 0
    hard = next(each for each in found.tags if each.tag == "hard")
    assert hard.adjusted_worse == pytest.approx(4 * 2**-10)


def test_tag_with_few_items_is_not_judged() -> None:
    tonight = run("tonight", [1.0] * 50, tags=lambda item: ("few",) if item < 19 else ())
    assert verdict(tonight, [tonight], Limits()).tags == ()


def test_many_suites_share_the_level() -> None:
    worst, fine = runs(fixed=0, broken=8), runs(fixed=0, broken=0)
    cases = [
        Case(candidate=tonight, baseline=[pinned], limits=Limits())
        for tonight, pinned in [worst, *[fine] * 4]
    ]
    alone = verdict(worst[0], [worst[1]], Limits())
    together = verdicts(cases)
    assert alone.word == Word.WORSE
    assert {each.word for each in together} == {Word.OK}
    assert together[0].whole is not None
    assert together[0].whole.adjusted_worse == pytest.approx(5 * 2**-8)


def test_suite_without_a_verdict_takes_no_part_of_the_level() -> None:
    worst, outage = runs(fixed=0, broken=7), run("outage", [Missing.EMPTY] * 200)
    cases = [
        Case(candidate=outage, baseline=[worst[1]], limits=Limits()),
        Case(candidate=worst[0], baseline=[worst[1]], limits=Limits()),
    ]
    assert [each.word for each in verdicts(cases)] == [Word.NO_VERDICT, Word.WORSE]


def test_score_that_is_surely_below_the_floor_is_worse() -> None:
    same = run("tonight", [1.0] * 150 + [0.0] * 50)
    found = verdict(same, [same], Limits(floor=0.9))
    assert (found.word, found.why) == (Word.WORSE, "surely below the floor of 0.9")


def test_score_that_may_be_above_the_floor_is_ok() -> None:
    same = run("tonight", [1.0] * 150 + [0.0] * 50)
    assert verdict(same, [same], Limits(floor=0.8)).word == Word.OK


def test_sentence_has_all_that_a_report_must_say() -> None:
    tonight, pinned = runs(fixed=6, broken=14)
    assert verdict(tonight, [pinned], Limits()).sentence == (
        "ok: -4.0 points [-8.6, +0.5], p = 0.0577 (Holm 0.0577), 14 broken and 6 fixed of 200"
        " items; sees drops of 7.0 points or more"
    )


def test_surest_flips_come_first() -> None:
    pins = [run(f"pin-{number}", [1.0, float(number > 0), 0.0, 1.0]) for number in range(3)]
    found = verdict(run("tonight", [0.0, 0.0, 1.0, 1.0]), pins, Limits(min_answered=0))
    assert [(flip.item, flip.is_broken) for flip in found.flips] == [
        ("0", True),
        ("1", True),
        ("2", False),
    ]


@pytest.mark.parametrize(
    ("tonight", "low", "high"),
    [
        ([1.0] * 87 + [0.0] * 13, 0.790196, 0.922428),
        ([[1.0, 1.0]] * 3 + [[0.0, 1.0]] * 2, 0.46, 1.14),
    ],
)
def test_score_has_an_interval(
    tonight: Sequence[float | Sequence[float]], low: float, high: float
) -> None:
    found = score([run("tonight", tonight)])  # type: ignore[arg-type]
    assert found is not None
    assert found.interval.low == pytest.approx(low, abs=1e-2)
    assert found.interval.high == pytest.approx(high, abs=1e-2)


def test_score_of_nothing_is_none() -> None:
    assert score([run("tonight", [Missing.EMPTY])]) is None


def test_one_item_says_that_it_sees_nothing() -> None:
    found = verdict(run("tonight", [0.2]), [run("pin", [0.4])], Limits())
    assert "[-inf, +inf]" in found.sentence
    assert found.sentence.endswith("; sees no drop")
