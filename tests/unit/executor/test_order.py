"""Who goes first by each policy, and that a batch stays full or fixed as asked."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from executor.fake import fake_engine
from executor.request import Request, SamplingParams
from executor.settings import Scheduling, SchedulingPolicy
from tests.support.engine_runs import alone, limits, request, run

ONE_AT_A_TIME = limits(seqs=1, tokens=64, length=256, blocks=100, size=4)


def order(policy: SchedulingPolicy, *requests: Request) -> list[str]:
    scheduling = Scheduling(policy=policy, max_num_waiting=len(requests))
    engine = fake_engine(ONE_AT_A_TIME, scheduling)
    return [completion.request_id for completion in engine.run(requests)]


def sized(name: str, answer: int, prompt: str = "", priority: int = 0) -> Request:
    return Request(
        id=name,
        prompt_token_ids=tuple((prompt + name).encode()),
        sampling=SamplingParams(temperature=0, max_tokens=answer, ignore_eos=True),
        priority=priority,
    )


def test_fcfs_is_the_order_of_arrival() -> None:
    assert order("fcfs", sized("c", 3), sized("a", 9), sized("b", 1)) == ["c", "a", "b"]


def test_priority_takes_the_lowest_and_then_the_first() -> None:
    requests = [sized(n, 4, priority=p) for n, p in (("a", 2), ("b", 0), ("c", -1), ("d", 0))]
    assert order("priority", *requests) == ["c", "b", "d", "a"]


def test_lengths_order_by_what_is_expected_of_the_answer() -> None:
    requests = [sized("a", 5), sized("b", 9), sized("c", 2)]
    assert order("shortest_first", *requests) == ["c", "a", "b"]
    assert order("longest_first", *requests) == ["b", "a", "c"]


@pytest.mark.parametrize("policy", ["prefix", "auto"])
def test_groups_run_together(policy: SchedulingPolicy) -> None:
    names = [f"{group}{i}" for group in "xyz" for i in range(4)]
    random.Random(2).shuffle(names)
    # With prefixes of more than a quarter of the cache, auto keeps groups together to the end.
    requests = [sized(n, 4, prompt=n[0] * 60) for n in names]
    groups = [name[0] for name in order(policy, *requests)]
    assert sum(a != b for a, b in pairwise(groups)) == 2
    assert groups[0] == names[0][0]


def test_auto_takes_the_group_with_the_longest_answer_first() -> None:
    requests = [sized(f"{g}{i}", a, prompt=g * 90) for g, a in (("x", 3), ("y", 9)) for i in "12"]
    assert order("auto", *requests) == ["y1", "y2", "x1", "x2"]


def test_auto_ends_with_the_shortest_when_nobody_else_comes() -> None:
    requests = [sized("a", 2), sized("b", 30), sized("c", 2), sized("d", 11)]
    assert order("auto", *requests) == ["b", "d", "a", "c"]


def test_auto_learns_lengths_and_shortens_the_tail() -> None:
    """The long ones come last in the file: in that order most slots end up idle."""
    requests = [sized(f"s{i}", 4) for i in range(24)] + [sized(f"l{i}", 60) for i in range(4)]

    def steps(policy: SchedulingPolicy) -> int:
        engine = fake_engine(limits(seqs=4, tokens=64, blocks=200), Scheduling(policy=policy))
        run(engine, *requests)
        return engine.metrics.steps_total

    # Four slots: 24 * 4 tokens in 24 steps and then 60 more, or the short ones beside the long.
    assert steps("fcfs") == 84
    assert steps("auto") <= 84
    assert steps("longest_first") == steps("auto")


def test_static_batches_wait_for_their_longest_member() -> None:
    requests = [sized(f"r{i}", answer, prompt="p" * i) for i, answer in enumerate((2, 9, 4, 3))]
    engine = fake_engine(limits(seqs=2, tokens=64), Scheduling(policy="fcfs", batching="static"))
    running: list[int] = []
    completions = {
        completion.request_id: completion
        for completion in engine.run(
            requests, on_step=lambda: running.append(engine.metrics.num_requests_running)
        )
    }
    assert completions == {r.id: alone(r) for r in requests}
    assert running[1:] == [2] * 2 + [1] * 7 + [2] * 3 + [1]
    metrics = engine.metrics
    assert metrics.slots_sum == 2 * 9 + 2 * 4
    # Padded to prompts of 3 and 5 tokens, and decoded for 9 and 4 steps, the first in the prefill.
    assert metrics.padded_tokens_total == 2 * (3 + 9 - 1) + 2 * (5 + 4 - 1)


def test_slots_are_the_running_ones_when_batching_is_continuous() -> None:
    engine = fake_engine(limits(seqs=2))
    run(engine, *(request(str(i), str(i)) for i in range(5)))
    assert engine.metrics.slots_sum == engine.metrics.running_sum
    assert engine.metrics.padded_tokens_total == 0


@pytest.mark.parametrize("wrong", [{"policy": "lifo"}, {"batching": "dynamic"}])
def test_unknown_words_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="is not one of"):
        Scheduling(**wrong)  # type: ignore[arg-type]
