"""Equal requests are computed once, and each is answered as if it were alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from executor.duplicates import digest
from executor.fake import fake_engine
from executor.request import Request
from executor.settings import Scheduling
from tests.support.engine_runs import alone, limits, request, run


def test_equal_greedy_requests_are_computed_once() -> None:
    engine = fake_engine(limits())
    requests = [request(str(i), seed=i, ignore_eos=True) for i in range(5)]
    completions = run(engine, *requests)
    assert completions == {r.id: alone(r) for r in requests}
    assert engine.metrics.computed_tokens_total == 5 + 7
    assert engine.metrics.generation_tokens_total == 8
    assert engine.metrics.num_deduplicated_requests_total == 4
    assert engine.metrics.deduplicated_tokens_total == 4 * (5 + 8)
    assert engine.metrics.covered_tokens_total == 5 * 13 - 1
    assert sorted(c.cached_tokens for c in completions.values()) == [0, 5, 5, 5, 5]


def test_an_answer_is_remembered_after_its_request_has_ended() -> None:
    engine = fake_engine(limits(seqs=1), Scheduling(max_num_waiting=1, policy="fcfs"))
    requests = [request("a"), request("b", "other"), request("c", "third"), request("d")]
    assert run(engine, *requests) == {r.id: alone(r) for r in requests}
    assert engine.metrics.num_deduplicated_requests_total == 1


def test_a_run_remembers_nothing_of_the_one_before() -> None:
    engine = fake_engine(limits())
    run(engine, request("a"))
    run(engine, request("a"))
    assert engine.metrics.num_deduplicated_requests_total == 0


def test_deduplication_can_be_left_out() -> None:
    engine = fake_engine(limits(), Scheduling(deduplicate=False, enable_prefix_caching=False))
    requests = [request(str(i), ignore_eos=True, n=2) for i in range(3)]
    assert run(engine, *requests) == {r.id: alone(r) for r in requests}
    assert engine.metrics.generation_tokens_total == 3 * 2 * 8


def test_greedy_choices_of_one_request_are_one_computation() -> None:
    engine = fake_engine(limits())
    wanted = request("r", n=4, logprobs=1, ignore_eos=True)
    completion = run(engine, wanted)["r"]
    assert completion.completion_tokens == 4 * 8
    assert engine.metrics.generation_tokens_total == 8
    plain = fake_engine(limits(), Scheduling(deduplicate=False))
    assert run(plain, wanted)["r"] == completion


@pytest.mark.parametrize(
    "other",
    [
        {"prompt": "hellp"},
        {"max_tokens": 9},
        {"stop": ("x",)},
        {"logprobs": 1},
        {"temperature": 1.0, "seed": 1},
        {"n": 2},
    ],
    ids=lambda change: next(iter(change)),
)
def test_requests_that_differ_have_other_digests(other: dict[str, object]) -> None:
    assert digest(request("a")) != digest(request("b", **other))  # type: ignore[arg-type]


def test_seeds_are_told_apart_where_they_matter() -> None:
    assert digest(request("a", seed=1)) == digest(request("b", seed=2))
    random = {"temperature": 0.7}
    assert digest(request("a", seed=1, **random)) != digest(request("b", seed=2, **random))
    assert digest(request("a", seed=1, **random)) == digest(request("b", seed=1, **random))


def test_aborting_one_of_equal_requests_leaves_the_others() -> None:
    engine = fake_engine(limits())
    requests = [request(name, max_tokens=20, ignore_eos=True) for name in "abc"]

    def abort_the_first() -> None:
        if engine.metrics.steps_total == 3:
            engine.abort({"a"})

    completions = list(engine.run(requests, on_step=abort_the_first))
    assert [c.request_id for c in completions] == ["b", "c"]


def test_a_more_urgent_equal_request_pulls_the_first_forward() -> None:
    def urgent(wanted: Request, priority: int) -> Request:
        return replace(wanted, priority=priority)

    engine = fake_engine(limits(seqs=1), Scheduling(policy="priority"))
    requests = [
        urgent(request("b", "bb"), 1),
        urgent(request("a", "aa"), 2),
        urgent(request("again", "aa"), 0),
    ]
    assert [c.request_id for c in engine.run(requests)] == ["a", "again", "b"]
