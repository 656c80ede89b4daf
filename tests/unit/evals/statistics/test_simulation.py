"""The rule's false alarms and power, over simulated nights."""

from __future__ import annotations

import numpy as np
import pytest

from batchjobs.errors import UsageError
from batchjobs.evals.outcomes import ScoredRun
from batchjobs.evals.statistics.arrays import Floats
from batchjobs.evals.statistics.comparison import worse_and_better
from batchjobs.evals.statistics.nights import Side, p_worse
from batchjobs.evals.statistics.pairs import pair
from batchjobs.evals.statistics.simulation import simulate
from batchjobs.evals.statistics.validity import Limits
from tests.unit.evals.statistics.runs import run

NIGHTS = 10_000
ALPHA = 0.01
NOISE = 3 * (ALPHA * (1 - ALPHA) / NIGHTS) ** 0.5
"""Three standard errors of a share of so many nights."""

TRUTHS = {
    "one item in five is uncertain": np.r_[np.ones(130), np.zeros(30), np.linspace(0.02, 0.98, 40)],
    "easy": np.full(200, 0.95),
    "hard": np.full(200, 0.05),
    "hard and easy": np.r_[np.full(60, 0.07), np.ones(100), np.full(40, 0.9)],
}


def answers(chances: Floats, runs: int, random: np.random.Generator) -> Side:
    sums = random.binomial(runs, np.broadcast_to(chances, (NIGHTS, len(chances))))
    return Side(sums=sums.astype(float), squares=sums.astype(float), answers=runs)


def pins(chances: Floats, *, runs: int = 5, seed: int = 1, samples: int = 1) -> list[ScoredRun]:
    random = np.random.default_rng(seed)
    return [
        run(f"pin-{number}", (random.random((len(chances), samples)) < chances[:, None]).tolist())
        for number in range(runs)
    ]


@pytest.mark.parametrize("runs", [1, 5])
@pytest.mark.parametrize("truth", TRUTHS)
def test_false_alarms_keep_their_level_when_nothing_has_changed(truth: str, runs: int) -> None:
    """Of the first run alone: the second one only takes alarms back."""
    chances, random = TRUTHS[truth], np.random.default_rng(42)
    new, old = answers(chances, 1, random), answers(chances, runs, random)
    p = p_worse(new, old, np.arange(len(chances)), is_binary=True)
    assert (p < ALPHA).mean() <= ALPHA + NOISE
    assert (p < ALPHA).any()


def test_false_alarms_keep_their_level_for_a_model_that_answers_differently() -> None:
    """As many items are fixed as broken, but for chance: the items are others every night."""
    random = np.random.default_rng(43)
    before = random.random((NIGHTS, 200)) < 0.5
    tonight = before ^ (random.random(before.shape) < 0.2)
    new = Side(sums=tonight.astype(float), squares=tonight.astype(float), answers=1)
    old = Side(sums=5.0 * before, squares=5.0 * before, answers=5)
    assert (p_worse(new, old, np.arange(200), is_binary=True) < ALPHA).mean() <= ALPHA + NOISE


def test_false_alarms_keep_their_level_in_clusters() -> None:
    """Ten questions a passage, which are right and wrong together."""
    random = np.random.default_rng(44)
    passages = np.repeat(random.random((2, NIGHTS, 30)) < 0.5, 10, axis=2).astype(float)
    new, old = (Side(sums=side, squares=side, answers=1) for side in passages)
    clusters = np.repeat(np.arange(30), 10)
    assert (p_worse(new, old, clusters, is_binary=True) < ALPHA).mean() <= ALPHA + NOISE
    as_if_independent = p_worse(new, old, np.arange(300), is_binary=True)
    assert (as_if_independent < ALPHA).mean() > 0.1


def test_false_alarms_keep_their_level_for_other_scores() -> None:
    random = np.random.default_rng(45)
    scores = np.clip(0.6 + 0.2 * random.normal(size=(NIGHTS, 120, 6)), 0, 1)
    sides = [
        Side(sums=part.sum(axis=2), squares=(part**2).sum(axis=2), answers=part.shape[2])
        for part in (scores[..., :1], scores[..., 1:])
    ]
    share = (p_worse(*sides, np.arange(120), is_binary=False) < ALPHA).mean()
    assert share == pytest.approx(ALPHA, abs=NOISE)


@pytest.mark.parametrize(("items", "power"), [(200, 0.486), (500, 0.866)])
def test_power_of_one_run_as_published(items: int, power: float) -> None:
    """7 % broken and 3 % fixed, at a one-sided 5 %."""
    random = np.random.default_rng(46)
    changes = random.choice([-1, 1, 0], p=[0.07, 0.03, 0.9], size=(NIGHTS, items))
    sides = [
        Side(sums=side.astype(float), squares=side.astype(float), answers=1)
        for side in (changes > 0, changes < 0)
    ]
    found = (p_worse(*sides, np.arange(items), is_binary=True) < 0.05).mean()
    assert found == pytest.approx(power, abs=0.02)


@pytest.mark.parametrize("samples", [1, 3])
def test_nights_have_the_p_values_of_the_verdict(samples: int) -> None:
    chances = TRUTHS["hard and easy"]
    old = pins(chances, samples=samples)
    for seed in range(20):
        [tonight] = pins(chances * 0.95, runs=1, seed=100 + seed, samples=samples)
        pairs = pair([tonight], old)
        wanted = worse_and_better(pairs).lower
        sides = [
            Side(sums=np.array([list(map(sum, rows))]), squares=np.array([list(map(sum, rows))]),
                 answers=len(rows[0]))
            for rows in ([each.new for each in pairs], [each.old for each in pairs])
        ]  # fmt: skip
        [found] = p_worse(*sides, np.arange(len(chances)), is_binary=True)
        if wanted < 0.19:
            assert found == pytest.approx(wanted, abs=1e-9)


def test_simulation_alarms_with_a_drop_and_hardly_ever_without() -> None:
    found = simulate(pins(TRUTHS["one item in five is uncertain"]), Limits(), drops=(0, 0.03, 0.1))
    nothing, some, much = found.rows
    assert nothing.nights >= 10_000
    assert found.false_alarms == nothing.alarmed < nothing.suspected < ALPHA
    assert 0.05 < some.alarmed < 0.5
    assert much.alarmed > 0.9
    assert found.flips == pytest.approx(0.065, abs=0.02)


def test_simulation_of_tags_shares_the_level() -> None:
    chances = TRUTHS["one item in five is uncertain"]
    random = np.random.default_rng(1)
    tagged = [
        run(f"pin-{number}", (random.random(200) < chances).astype(float).tolist(),
            tags=lambda item: (f"tag-{item % 4}",))
        for number in range(5)
    ]  # fmt: skip
    found = simulate(tagged, Limits(), drops=(0, 0.1), nights=4000, nights_with_drop=500)
    assert found.tags == ("tag-0", "tag-1", "tag-2", "tag-3")
    assert found.rows[0].suspected < ALPHA
    assert found.rows[1].alarmed > 0.8


def test_suite_that_never_varies_never_alarms_for_nothing() -> None:
    found = simulate(pins(np.r_[np.ones(80), np.zeros(20)]), Limits(), drops=(0, 0.1), nights=1000)
    assert found.flips == 0
    assert found.rows[0].suspected == 0
    assert found.rows[1].alarmed > 0.5


def test_simulation_of_other_scores() -> None:
    random = np.random.default_rng(2)
    means = random.uniform(0.3, 0.9, 150)
    runs = [
        run(f"pin-{number}", np.clip(means + 0.1 * random.normal(size=150), 0, 1).tolist())
        for number in range(5)
    ]
    found = simulate(runs, Limits(), drops=(0, 0.08))
    assert not found.is_binary
    assert found.flips == pytest.approx(0.1, abs=0.01)
    assert found.rows[0].suspected <= ALPHA + NOISE
    assert found.rows[1].alarmed > 0.8


def test_noise_cannot_be_told_from_one_answer_an_item() -> None:
    with pytest.raises(UsageError, match="several runs"):
        simulate(pins(TRUTHS["easy"], runs=1), Limits())


def test_simulation_is_told_in_a_table() -> None:
    found = simulate(pins(TRUTHS["easy"]), Limits(), drops=(0,), nights=1000)
    head, noise, rule, blank, header, row, _, needed = found.lines()
    assert head.startswith(
        "arithmetic (exact): 200 items, 1 answer each, a baseline of 5 runs at 9"
    )
    assert noise.startswith("With nothing changed, ")
    assert "α = 0.01" in rule
    assert not blank
    assert header.split() == ["true", "drop", "nights", "run", "twice", "alarm"]
    assert row.split()[:3] == ["0", "points", "1,000"]
    assert f"{found.items_for(0.01):,} items" in needed


def test_needed_items_are_those_that_the_simulation_finds() -> None:
    chances = TRUTHS["one item in five is uncertain"]
    items = simulate(pins(chances), Limits(), drops=(), nights=1).items_for(0.05)
    many = np.random.default_rng(3).choice(chances, items)
    found = simulate(pins(many), Limits(), drops=(0.05,)).rows[0]
    assert found.suspected == pytest.approx(0.8, abs=0.07)


def test_suite_without_a_right_answer_can_only_be_fine() -> None:
    found = simulate(pins(np.zeros(50)), Limits(), nights=100)
    assert [(row.drop, row.alarmed) for row in found.rows] == [(0, 0)]
