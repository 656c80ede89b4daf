from __future__ import annotations

import random

import pytest

from executor.step_time import FIXED_POSITIONS, LARGEST, StepCost, StepTimes

TRUE = StepCost(fixed=0.03, position=0.0005, attended=2e-6)


def observed(steps: int, *, noise: float = 0.0, held_up: float = 0.0) -> StepTimes:
    """After steps of a run: prompts at first, then fewer and fewer answers."""
    draw, times = random.Random(3), StepTimes()
    for step in range(steps):
        positions = 512 if step % 9 == 0 else max(1, 64 - step // 4)
        attended = positions * (200 + step)
        seconds = TRUE.of(positions, attended) * draw.lognormvariate(0, noise)
        slow = 20 if draw.random() < held_up else 1
        times.observe(positions=positions, attended=attended, seconds=seconds * slow)
    return times


def test_cost_before_any_step_is_that_of_reading_the_weights() -> None:
    assert StepTimes().cost == StepCost(fixed=FIXED_POSITIONS, position=1.0, attended=0.0)
    assert StepTimes().budget(2.0) is None


@pytest.mark.parametrize(("noise", "held_up"), [(0.0, 0.0), (0.1, 0.0), (0.1, 0.05)])
def test_cost_is_found_also_where_steps_were_held_up(noise: float, held_up: float) -> None:
    cost = observed(300, noise=noise, held_up=held_up).cost
    for positions, attended in ((1, 300), (32, 9_600), (512, 150_000)):
        assert cost.of(positions, attended) == pytest.approx(TRUE.of(positions, attended), rel=0.15)
    assert cost.fixed == pytest.approx(TRUE.fixed, rel=0.25)


def test_steps_that_are_all_alike_keep_what_was_taken_for_true() -> None:
    times = StepTimes()
    for _ in range(200):
        times.observe(positions=40, attended=0, seconds=0.067)
    cost = times.cost
    assert cost.of(40, 0) == pytest.approx(0.067, rel=0.01)
    assert cost.fixed / cost.position == pytest.approx(FIXED_POSITIONS, rel=0.05)


def test_no_cost_is_negative() -> None:
    times = StepTimes()
    for positions in range(1, 200):
        seconds = 0.1 if positions < 100 else 0.05
        times.observe(positions=positions, attended=positions, seconds=seconds)
    cost = times.cost
    assert min(cost.fixed, cost.position, cost.attended) >= 0


def test_budget_grows_until_it_wins_nothing_or_lasts_too_long() -> None:
    times = observed(300)
    assert times.budget(100.0) == LARGEST or 400 < (times.budget(100.0) or 0) < LARGEST
    in_time = times.budget(0.1)
    assert in_time is not None
    assert TRUE.of(in_time, in_time * 300) == pytest.approx(0.1, rel=0.15)
