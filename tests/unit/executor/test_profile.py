"""Where time goes, on a clock that the tests turn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest
import torch
from torch import nn

from executor.layer_profile import is_linear, watch_layers
from executor.linear import LinearPart, SharedProduct
from executor.passing import current_profile
from executor.profile import NO_PROFILE, Part, Profile


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def seconds(profile: Profile) -> dict[str, float]:
    return {part.name: part.seconds for part in profile.report().parts if part.seconds}


def test_inner_parts_are_taken_off_the_outer_one(clock: Clock) -> None:
    profile = Profile(clock=clock)
    clock.now += 1
    with profile.measure(Part.MODEL):
        clock.now += 2
        with profile.measure(Part.LINEARS):
            clock.now += 4
        clock.now += 8
    assert seconds(profile) == {Part.CALLER: 1, Part.MODEL: 10, Part.LINEARS: 4}


def test_parts_add_up_to_the_wall_time(clock: Clock) -> None:
    profile = Profile(clock=clock)
    profile.step(7)
    with profile.measure(Part.SAMPLING):
        clock.now += 3
    clock.now += 1
    report = profile.report()
    assert sum(part.seconds for part in report.parts) == report.wall_seconds == 4
    assert sum(part.share for part in report.parts) == pytest.approx(1)
    assert (report.steps, report.tokens) == (1, 7)
    assert {part.name: part.step_ms for part in report.parts}[Part.SAMPLING] == 3000


def test_a_part_that_an_error_left_open_ends_with_the_outer_one(clock: Clock) -> None:
    profile = Profile(clock=clock)
    with suppress(MemoryError), profile.measure(Part.MODEL):
        profile.enter(Part.LINEARS)
        raise MemoryError
    clock.now += 5
    assert seconds(profile) == {Part.CALLER: 5}


def test_waiting_for_the_source_is_charged_and_its_work_elsewhere_is_not(clock: Clock) -> None:
    def source() -> Iterator[int]:
        for number in range(2):
            clock.now += 1
            yield number

    profile = Profile(clock=clock)
    for _ in profile.watch_source(source()):
        clock.now += 10
    assert seconds(profile) == {Part.REQUESTS: 2, Part.CALLER: 20}


def test_reset_begins_anew(clock: Clock) -> None:
    profile = Profile(clock=clock)
    clock.now += 5
    profile.step(1)
    profile.reset()
    assert profile.report().wall_seconds == profile.report().steps == 0


def test_no_profile_leaves_the_source_alone() -> None:
    source = iter([1, 2])
    assert NO_PROFILE.watch_source(source) is source
    with NO_PROFILE.measure(Part.MODEL):
        NO_PROFILE.step(1)


class Attending(nn.Module):
    """A model that shows what its layers are given."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
        self.given: object = None

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        self.given = current_profile()
        return self.layers(values)


def test_profile_of_a_pass_that_fails_is_nobody_elses() -> None:
    model = Attending()
    watch_layers(model, Profile())
    with pytest.raises(RuntimeError, match="shapes"):
        model(torch.zeros(1, 3))
    assert current_profile() is NO_PROFILE


def test_watched_layers_are_charged_and_get_the_profile() -> None:
    ticks = iter(range(100))
    profile, model = Profile(clock=lambda: float(next(ticks))), Attending()
    watch_layers(model, profile)
    model(torch.zeros(1, 2))
    assert model.given is profile
    assert current_profile() is NO_PROFILE
    assert seconds(profile)[Part.LINEARS] == 2


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (nn.Linear(1, 1), True),
        (LinearPart(SharedProduct(nn.Linear(1, 1), [1]), 0), True),
        (nn.ReLU(), False),
        (nn.LayerNorm(1), False),
    ],
)
def test_linear_layers_are_known(layer: nn.Module, expected: bool) -> None:
    assert is_linear(layer) is expected
