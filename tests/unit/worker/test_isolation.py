from __future__ import annotations

from dataclasses import replace

import pytest

from batchjobs.queue.claims import Claim
from batchjobs.worker.isolation import condemned, groups, is_dangerous
from tests.support.jobs import must_claim, open_deployment, request_line, start_job


@pytest.fixture(scope="module")
def first_try(tmp_path_factory: pytest.TempPathFactory) -> Claim:
    with open_deployment(tmp_path_factory.mktemp("home")) as deployment:
        start_job(deployment, [request_line("a")])
        return must_claim(deployment)


def test_two_deaths_are_free(first_try: Claim) -> None:
    assert [is_dangerous(replace(first_try, attempt=n)) for n in (1, 2, 3)] == [False, False, True]
    assert is_dangerous(replace(first_try, suspects=(3, 7)))


def test_groups_are_halves_while_nothing_is_known(first_try: Claim) -> None:
    assert groups([1, 2, 5, 8, 9], replace(first_try, attempt=3)) == [[1, 2, 5], [8, 9]]
    assert groups([4], replace(first_try, attempt=3)) == [[4]]
    assert groups([], replace(first_try, attempt=3)) == []


def test_groups_halve_the_suspects_after_what_is_beside_them(first_try: Claim) -> None:
    claim = replace(first_try, suspects=(5, 9))
    assert groups([1, 2, 5, 8, 9, 12], claim) == [[1, 2], [12], [5, 8], [9]]


def test_groups_take_the_rest_together_when_the_suspects_are_answered(first_try: Claim) -> None:
    assert groups([1, 2, 12], replace(first_try, suspects=(5, 9))) == [[1, 2, 12]]


@pytest.mark.parametrize(
    ("attempt", "suspects", "unanswered", "expected"),
    [
        (3, (5, 5), [1, 5, 9], 5),
        (3, (4, 6), [1, 5, 9], 5),
        (2, (5, 5), [1, 5, 9], None),
        (3, (1, 5), [1, 5, 9], None),
        (3, (5, 5), [1, 9], None),
        (9, None, [5], None),
    ],
    ids=["alone", "alone of its range", "not often enough", "two", "answered", "no suspects"],
)
def test_line_is_condemned_after_three_deaths_alone(
    first_try: Claim,
    attempt: int,
    suspects: tuple[int, int] | None,
    unanswered: list[int],
    expected: int | None,
) -> None:
    claim = replace(first_try, attempt=attempt, suspects=suspects)
    assert condemned(claim, unanswered) == expected
