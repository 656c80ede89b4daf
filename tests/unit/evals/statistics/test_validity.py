from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from batchjobs.evals.outcomes import Missing
from batchjobs.evals.statistics.validity import Limits, rates, why_invalid
from tests.unit.evals.statistics.runs import Answer, run

RIGHT = [1.0] * 100


def why(
    tonight: Sequence[Answer],
    before: Sequence[Answer] = RIGHT,
    limits: Limits | None = None,
    **new: Any,
) -> str | None:
    return why_invalid([run("tonight", tonight, **new)], [run("pin", before)], limits or Limits())


def test_like_and_like_may_be_compared() -> None:
    assert why(RIGHT) is None


def test_another_model_may_be_compared() -> None:
    assert why(RIGHT, model="another") is None


@pytest.mark.parametrize("what", ["items", "prompts", "template", "scorer", "sampling"])
def test_other_conditions_have_no_verdict(what: str) -> None:
    assert why(RIGHT, **{what: "another"}) == f"tonight and pin differ in {what}"


def test_all_that_differs_is_named() -> None:
    changed = why(RIGHT, prompts="x", template="x", scorer="x")
    assert changed == "tonight and pin differ in prompts, template and scorer"


def test_fewer_items_have_no_verdict() -> None:
    assert why(RIGHT[:-1]) == "tonight and pin differ in items"


def test_pinned_runs_that_differ_have_no_verdict() -> None:
    pins = [run("pin-1", RIGHT), run("pin-2", RIGHT, scorer="another")]
    found = why_invalid([run("tonight", RIGHT)], pins, Limits())
    assert found == "tonight and pin-2 differ in scorer"


def test_no_baseline_is_said() -> None:
    assert why_invalid([run("tonight", RIGHT)], [], Limits()) == "no baseline is pinned"


@pytest.mark.parametrize("missing", Missing)
def test_each_reason_has_a_limit_of_its_own(missing: Missing) -> None:
    tonight = [missing] * 2 + RIGHT[2:]
    loose = Limits(min_answered=0.5)
    assert (why(tonight, limits=loose) or "").startswith(f"2.0% {missing.replace('_', ' ')}")
    assert why(tonight, limits=Limits(min_answered=0.5, max_rates={missing: 0.02})) is None


def test_outage_is_no_regression() -> None:
    found = why([Missing.REQUEST_FAILED] * 100)
    assert found == "no answer has a score"


def test_what_the_baseline_has_is_allowed_tonight() -> None:
    before = [Missing.TRUNCATED] * 6 + RIGHT[6:]
    assert why([Missing.TRUNCATED] * 7 + RIGHT[7:], before) is None
    assert why([Missing.TRUNCATED] * 8 + RIGHT[8:], before) is not None


def test_rates_are_those_of_all_answers() -> None:
    tonight = run("tonight", [[1.0, Missing.EMPTY], [1.0, 1.0]])
    found = {rate.missing: rate for rate in rates([tonight], [run("pin", [1.0, 1.0])], Limits())}
    assert found[Missing.EMPTY].share == 0.25
    assert not found[Missing.EMPTY].is_within
    assert found[Missing.UNPARSED].share == 0
