from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.special import stdtr

from batchjobs.evals.outcomes import Missing
from batchjobs.evals.statistics import mcnemar
from batchjobs.evals.statistics.comparison import Comparison, compare, worse_and_better
from batchjobs.evals.statistics.pairs import clustered_error, pair
from batchjobs.evals.statistics.randomisation import exchange, sign_flip
from tests.unit.evals.statistics.gpqa import BETTER, LESSER
from tests.unit.evals.statistics.runs import flipped, run


def compared(new: Sequence[object], old: Sequence[object]) -> Comparison:
    return compare(pair([run("new", new)], [run("old", old)]), alpha=0.01)  # type: ignore[arg-type]


def digits(words: Sequence[str]) -> list[list[float]]:
    return [[float(digit) for digit in word] for word in words]


def by_every_sign(values: Sequence[float]) -> float:
    """P(sum ≤ the observed), by telling all signs."""
    sums = [
        math.fsum(sign * value for sign, value in zip(signs, values, strict=True))
        for signs in itertools.product((-1, 1), repeat=len(values))
    ]
    return sum(total <= math.fsum(values) + 1e-9 for total in sums) / len(sums)


@pytest.mark.parametrize(
    ("fixed", "broken", "items", "effect", "error"),
    [
        (6, 14, 200, -0.04, 0.022237),
        (0, 5, 100, -0.05, 0.021904),
        (0, 6, 100, -0.06, 0.023868),
        (3, 9, 500, -0.012, 0.006914),
        (2, 10, 164, -0.048780, 0.020840),
        (12, 31, 1319, -0.014405, 0.004958),
        (40, 60, 1319, -0.015163, 0.007573),
        (1, 1, 50, 0, 0.028571),
        (0, 0, 50, 0, 0),
    ],
)
def test_one_answer_a_side_is_exact_mcnemar(
    fixed: int, broken: int, items: int, effect: float, error: float
) -> None:
    found = compared(*flipped(fixed=fixed, broken=broken, items=items))
    assert found.method == "exact McNemar"
    assert (found.fixed, found.broken, found.items) == (fixed, broken, items)
    assert found.effect == pytest.approx(effect, abs=1e-6)
    assert found.error == pytest.approx(error, abs=1e-6)
    assert found.p_worse == mcnemar.worse(fixed, broken)
    assert found.p_better == mcnemar.worse(broken, fixed)


@pytest.mark.parametrize(("fixed", "broken"), [(6, 14), (0, 6), (40, 60), (1, 1)])
def test_both_randomisations_of_one_answer_a_side_are_mcnemar(fixed: int, broken: int) -> None:
    new, old = flipped(fixed=fixed, broken=broken, items=150)
    wanted = pytest.approx(mcnemar.worse(fixed, broken), abs=1e-12)
    assert sign_flip(np.array(new) - np.array(old)).lower == wanted
    assert exchange([((a,), (b,)) for a, b in zip(new, old, strict=True)]).lower == wanted


def test_scores_that_are_not_0_and_1() -> None:
    old = [0.80, 0.55, 0.91, 0.40, 0.72, 0.66, 0.88, 0.35, 0.60, 0.77]
    new = [0.78, 0.50, 0.90, 0.42, 0.65, 0.60, 0.86, 0.30, 0.61, 0.70]
    found = compared(new, old)
    assert found.effect == pytest.approx(-0.032)
    assert found.error == pytest.approx(0.010306, abs=1e-6)
    assert found.interval.low == pytest.approx(-0.055315, abs=1e-6)
    assert found.interval.high == pytest.approx(-0.008685, abs=1e-6)
    assert found.p_worse == pytest.approx(0.01269531, abs=1e-8)


def test_repeated_answers_count_by_item() -> None:
    old = digits(["111", "101", "000", "111", "011", "110"])
    new = digits(["111", "001", "000", "101", "001", "111"])
    found = compared(new, old)
    assert found.effect == pytest.approx(-1 / 9)
    assert found.error == pytest.approx(1 / 9)
    assert found.interval.low == pytest.approx(-0.396731, abs=1e-6)
    assert found.interval.high == pytest.approx(0.174509, abs=1e-6)
    differences = [math.fsum(a) / 3 - math.fsum(b) / 3 for a, b in zip(new, old, strict=True)]
    assert sign_flip(np.array(differences)).lower == pytest.approx(0.3125)


def test_clustered_errors_as_statsmodels_has_them() -> None:
    rows = ["1111", "0000", "1101", "0100", "1110"]
    values = [float(digit) for row in rows for digit in row]
    names = [row for row in rows for _ in row]
    assert clustered_error(values, [str(at) for at in range(20)]) == pytest.approx(
        0.114133, abs=1e-6
    )
    assert clustered_error(values, names) == pytest.approx(0.183712, abs=1e-6)


def test_clustered_errors_of_unequal_clusters() -> None:
    groups = ["110", "00", "1111", "010", "1"]
    values = [float(digit) for group in groups for digit in group]
    assert clustered_error(values, [str(at) for at in range(13)]) == pytest.approx(
        0.140442, abs=1e-6
    )
    names = [group for group in groups for _ in group]
    assert clustered_error(values, names) == pytest.approx(0.187817, abs=1e-6)


def test_two_real_models_on_the_same_questions() -> None:
    found = compared(digits(BETTER.split()), digits(LESSER.split()))
    assert (found.score, found.baseline) == pytest.approx((0.675758, 0.617172), abs=1e-6)
    assert found.effect == pytest.approx(0.058586, abs=1e-6)
    assert found.error == pytest.approx(0.027788, abs=1e-6)
    assert found.interval.low == pytest.approx(0.003785, abs=1e-6)
    assert found.interval.high == pytest.approx(0.113387, abs=1e-6)
    by_t = 2 * (1 - float(stdtr(197, found.effect / found.error)))
    assert by_t == pytest.approx(0.036271, abs=1e-6)
    assert found.p_either == pytest.approx(by_t, abs=0.004)


def test_first_answers_of_two_real_models() -> None:
    better, lesser = (
        [row[0] for row in digits(BETTER.split())],
        [row[0] for row in digits(LESSER.split())],
    )
    found = compared(better, lesser)
    assert (found.fixed, found.broken) == (28, 19)
    assert found.p_either == pytest.approx(0.24296, abs=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_sign_flip_is_what_telling_all_signs_gives(seed: int) -> None:
    values = np.random.default_rng(seed).integers(-9, 8, 11) / 10
    assert sign_flip(values).lower == pytest.approx(by_every_sign(list(values)), abs=1e-12)


def test_exchange_is_what_telling_all_ways_gives() -> None:
    items = [((0.0,), (1.0, 1.0)), ((0.5,), (0.25, 1.0)), ((1.0,), (0.0, 0.25))]
    differences = []
    for new, old in items:
        pool = [*new, *old]
        differences.append([3 / 2 * each - math.fsum(pool) / 2 for each in pool])
    sums = [math.fsum(ways) for ways in itertools.product(*differences)]
    observed = math.fsum(row[0] for row in differences)
    wanted = sum(total <= observed + 1e-9 for total in sums) / len(sums)
    assert exchange(items).lower == pytest.approx(wanted, abs=1e-12)


def test_flips_of_one_cluster_are_one_piece_of_evidence() -> None:
    new, old = flipped(fixed=0, broken=12, items=120)
    alone = pair([run("new", new)], [run("old", old)])
    in_passages = pair(
        [run("new", new, cluster=lambda item: f"passage {item // 6}")], [run("old", old)]
    )
    assert worse_and_better(alone).lower == pytest.approx(2**-12)
    assert worse_and_better(in_passages).lower == pytest.approx(2**-2)


def test_deterministic_night_still_says_what_it_could_have_seen() -> None:
    found = compared(*flipped(fixed=0, broken=0, items=350))
    assert found.smallest_drop == pytest.approx(7 / 350)


@pytest.mark.parametrize(
    ("scores", "drop"), [([0.5, 1.0], 7 / 50), ([-4.0, 6.0], 10 * 7 / 50), ([0.3, 0.3], 7 / 50)]
)
def test_graded_scores_that_all_stayed_do_not_promise_to_see_any_drop(
    scores: list[float], drop: float
) -> None:
    found = compared(scores * 25, scores * 25)
    assert found.smallest_drop == pytest.approx(drop)


def test_item_without_a_score_on_one_side_is_left_out() -> None:
    pairs = pair([run("new", [1.0, Missing.EMPTY, 0.0])], [run("old", [1.0, 1.0, 1.0])])
    assert [each.item for each in pairs] == ["0", "2"]
