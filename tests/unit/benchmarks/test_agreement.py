"""How far answers are the same."""

from __future__ import annotations

import pytest

from benchmarks.agreement import Agreement, agreement


def test_tokens_count_up_to_the_first_that_differs() -> None:
    ours = [[1, 2, 3, 4], [5, 6], [7, 8]]
    theirs = [[1, 2, 9, 4], [5, 6], [7, 8, 9]]
    counted = agreement(ours, theirs)
    assert counted == Agreement(answers=1, tokens=6, of_tokens=9)
    assert counted.share == pytest.approx(2 / 3)


def test_nothing_to_compare_is_equal() -> None:
    assert agreement([[], []], [[], []]) == Agreement(answers=2, tokens=0, of_tokens=0)
    assert agreement([], []).share == 1


def test_answers_that_are_missing_are_an_error() -> None:
    with pytest.raises(ValueError, match="argument"):
        agreement([[1]], [[1], [2]])
