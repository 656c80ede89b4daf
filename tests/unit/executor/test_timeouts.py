"""A request that runs for longer than it may ends with what it has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from executor.engine import Engine
from executor.fake import ByteTokenizer, HashModel
from executor.request import FinishReason, Request
from executor.settings import Limits, Scheduling
from tests.support.engine_runs import alone, limits, request


class Clock:
    """A second a step."""

    def __init__(self) -> None:
        self.now = 100.0

    def tick(self) -> None:
        self.now += 1

    def __call__(self) -> float:
        return self.now


def engine_with(clock: Clock, within: Limits, scheduling: Scheduling | None = None) -> Engine:
    return Engine(HashModel(within), ByteTokenizer(), within, scheduling, clock=clock)


def test_a_request_ends_when_its_time_is_up() -> None:
    clock = Clock()
    slow = replace(request("slow", max_tokens=40, ignore_eos=True), timeout_seconds=5.0)
    free = request("free", "other", max_tokens=12, ignore_eos=True)
    engine = engine_with(clock, limits())
    completions = {c.request_id: c for c in engine.run([slow, free], on_step=clock.tick)}
    [choice] = completions["slow"].choices
    assert choice.finish_reason is FinishReason.TIMEOUT
    assert choice.generated_tokens == 5
    assert (
        choice.token_ids
        == alone(request("slow", max_tokens=5, ignore_eos=True)).choices[0].token_ids
    )
    assert completions["free"] == alone(free)


def test_waiting_does_not_count() -> None:
    clock = Clock()
    requests = [
        replace(request(n, n, max_tokens=8, ignore_eos=True), timeout_seconds=8.5) for n in "abc"
    ]
    engine = engine_with(clock, limits(seqs=1))
    reasons = {
        c.request_id: c.choices[0].finish_reason for c in engine.run(requests, on_step=clock.tick)
    }
    assert set(reasons.values()) == {FinishReason.LENGTH}


def test_all_choices_end_together_and_nothing_is_remembered() -> None:
    clock = Clock()
    several = request("n", n=3, temperature=1.0, max_tokens=40, ignore_eos=True)
    again = replace(several, id="again")
    engine = engine_with(
        clock,
        limits(seqs=2),
        Scheduling(request_timeout_seconds=4, max_num_waiting=1, policy="fcfs"),
    )
    completions = {c.request_id: c for c in engine.run([several, again], on_step=clock.tick)}
    assert [c.finish_reason for c in completions["n"].choices] == [FinishReason.TIMEOUT] * 3
    assert completions["again"].choices[0].generated_tokens > 0


def test_a_time_limit_must_be_above_zero() -> None:
    with pytest.raises(ValueError, match="timeout_seconds must be above 0"):
        Request(id="r", prompt_token_ids=(1,), timeout_seconds=0)
