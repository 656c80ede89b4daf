"""What is expected of an answer, and how many of them the cache is thought to hold."""

from __future__ import annotations

import random

import pytest

from executor.fake import fake_engine
from executor.forecast import Forecast
from executor.lengths import ENOUGH, REMEMBERED, LengthModel, is_exact
from executor.request import SamplingParams
from tests.support.engine_runs import limits, request


def params(**sampling: object) -> SamplingParams:
    return SamplingParams(**{"max_tokens": 1000, **sampling})  # type: ignore[arg-type]


def test_nothing_known_is_a_guess_that_grows_with_the_answer() -> None:
    lengths = LengthModel(unknown=256)
    assert lengths.expect(params()) == 256
    assert lengths.expect(params(), 200) == 400
    assert lengths.expect(params(), 900) == 1000
    assert lengths.expect(params(max_tokens=30)) == 30
    assert lengths.expect(params(min_tokens=700)) == 700


def test_expected_is_a_quantile_of_what_has_ended_and_was_longer() -> None:
    lengths = LengthModel(unknown=256)
    for length in range(1, 101):
        lengths.observe(params(), length)
    assert lengths.expect(params()) == 61
    assert lengths.expect(params(), 50) == 81
    assert lengths.expect(params(), 100) == 256


def test_a_preemption_raises_what_is_expected_for_a_while() -> None:
    lengths = LengthModel(unknown=256)
    for length in range(1, 101):
        lengths.observe(params(), length)
    lengths.expect_more()
    assert lengths.expect(params()) == 71
    for length in range(1, 101):
        lengths.observe(params(), length)
    assert lengths.expect(params()) == 61


def test_enough_requests_of_about_the_same_max_tokens_are_learned_from() -> None:
    lengths = LengthModel(unknown=256)
    for _ in range(ENOUGH - 1):
        lengths.observe(params(), 3)
    assert lengths.expect(params(max_tokens=600)) == 256
    lengths.observe(params(), 3)
    assert lengths.expect(params(max_tokens=600)) == 3
    assert lengths.expect(params(max_tokens=400)) == 256


def test_old_lengths_are_forgotten() -> None:
    lengths = LengthModel(unknown=256)
    for length in [900] * REMEMBERED + [5] * REMEMBERED:
        lengths.observe(params(), length)
    assert lengths.expect(params()) == 5


@pytest.mark.parametrize(
    ("sampling", "exact"),
    [
        ({"ignore_eos": True}, True),
        ({"ignore_eos": True, "stop": ("x",)}, False),
        ({"min_tokens": 1000}, True),
        ({}, False),
    ],
)
def test_an_answer_that_only_max_tokens_ends_is_known(
    sampling: dict[str, object], exact: bool
) -> None:
    assert is_exact(params(**sampling)) == exact
    lengths = LengthModel(unknown=256)
    for _ in range(ENOUGH):
        lengths.observe(params(), 5)
    assert lengths.expect(params(**sampling)) == (1000 if exact else 5)


def test_forecast_counts_what_ends_before_the_peak() -> None:
    forecast = Forecast(block_size=10)
    forecast.add(to_come=100, private=4)
    assert forecast.peak() == 10.5
    # When the second ends after ten tokens, its four blocks serve the first.
    forecast.add(to_come=10, private=4)
    assert forecast.peak() == 6.5
    assert forecast.fits(7)
    assert not forecast.fits(6)


def test_forecast_of_equals_is_their_sum() -> None:
    forecast = Forecast(block_size=10)
    for _ in range(5):
        forecast.add(to_come=20, private=1)
    assert forecast.peak() == 5 * 2.5


def test_learned_lengths_fill_the_cache_and_hardly_ever_preempt() -> None:
    """Four answers of max_tokens would fit, but they are a tenth as long, which is to be found."""
    generator = random.Random(5)
    requests = [
        request(
            str(i),
            "".join(generator.choices("abcdefgh", k=generator.randint(4, 30))),
            max_tokens=900,
            temperature=1.0,
            seed=i,
        )
        for i in range(200)
    ]
    engine = fake_engine(
        limits(seqs=64, tokens=256, length=1000, blocks=1000, size=4),
    )
    list(engine.run(requests))
    metrics = engine.metrics
    assert metrics.num_recomputed_tokens_total < 0.01 * metrics.computed_tokens_total
    assert metrics.mean_running > 10
