"""Scheduling over `HashModel`, whose logits change if any block of a sequence is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.fake import EOS, ByteTokenizer, fake_engine
from executor.request import FinishReason, Request
from executor.settings import Scheduling
from tests.support.engine_runs import alone, limits, request, run

requests_strategy = st.lists(
    st.builds(
        lambda prompt, seed, n, max_tokens, temperature, prompt_logprobs, penalties: {
            "prompt": prompt,
            "seed": seed,
            "n": n,
            "max_tokens": max_tokens,
            "temperature": temperature,
            "prompt_logprobs": prompt_logprobs,
            **penalties,
        },
        prompt=st.text("abcdef ", min_size=1, max_size=46),
        seed=st.integers(0, 2**64 - 1),
        n=st.integers(1, 4),
        max_tokens=st.integers(0, 50),
        temperature=st.sampled_from([0.0, 1.0]),
        prompt_logprobs=st.sampled_from([None, None, None, None, 2]),
        penalties=st.sampled_from(
            [
                {},
                {"frequency_penalty": 1.5, "presence_penalty": -0.5},
                {"repetition_penalty": 1.4, "logit_bias": ((97, 3.0), (98, -100.0))},
                {"stop_token_ids": (97, 101)},
            ]
        ),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=120, deadline=None)
@given(
    requests_strategy,
    st.integers(1, 6),
    st.sampled_from([1, 3, 7, 64]),
    st.integers(23, 60),
    st.sampled_from([1, 4, 5]),
)
def test_answers_do_not_depend_on_company_chunks_or_preemption(
    wanted: list[dict[str, object]], seqs: int, tokens: int, blocks: int, size: int
) -> None:
    requests = [request(str(i), ignore_eos=False, **w) for i, w in enumerate(wanted)]  # type: ignore[arg-type]
    tight = limits(seqs=seqs, tokens=tokens, blocks=max(blocks, -(-96 // size)), size=size)
    completions = run(fake_engine(tight, Scheduling(expected_tokens=1)), *requests)
    assert {r.id: alone(r) for r in requests} == completions


def test_a_stop_token_ends_an_answer_and_is_left_out_of_it() -> None:
    free = alone(request("a", max_tokens=8, ignore_eos=True)).choices[0]
    stop = free.token_ids[3]
    first = free.token_ids.index(stop)
    asked = request("a", max_tokens=8, ignore_eos=True, stop_token_ids=(stop,))
    [answer] = alone(asked).choices
    assert answer.token_ids == free.token_ids[:first]
    assert answer.finish_reason is FinishReason.STOP
    assert answer.generated_tokens == first + 1


def test_what_ended_an_answer_may_be_left_in_it() -> None:
    free = alone(request("a", max_tokens=8, ignore_eos=True)).choices[0]
    for stop in ({"stop": (free.text[2:4],)}, {"stop_token_ids": (free.token_ids[3],)}):
        asked = {"max_tokens": 8, "ignore_eos": True, **stop}
        [cut] = alone(request("a", **asked)).choices
        [kept] = alone(request("a", include_stop_str_in_output=True, **asked)).choices
        assert kept.generated_tokens == cut.generated_tokens == len(kept.token_ids)
        assert kept.text == free.text[: len(kept.token_ids)]
        assert len(cut.text) < len(kept.text)


def test_no_stop_token_comes_before_the_least_length() -> None:
    stops = tuple(range(97, 123))
    [answer] = alone(request("a", max_tokens=12, min_tokens=6, stop_token_ids=stops)).choices
    assert answer.generated_tokens > 6
    assert not set(answer.token_ids) & set(stops)


def test_a_penalty_keeps_an_answer_from_repeating_itself() -> None:
    penalty = {"frequency_penalty": 2.0, "presence_penalty": 2.0, "max_tokens": 40}
    biased = {"logit_bias": ((97, 9.0), (98, 9.0)), "max_tokens": 40, "ignore_eos": True}
    free = alone(request("a", **biased)).choices[0].token_ids
    kept = alone(request("a", **{**biased, **penalty})).choices[0].token_ids
    assert len(set(kept)) > 2 * len(set(free))


def test_preemption_happens_and_changes_nothing() -> None:
    engine = fake_engine(
        limits(seqs=8, tokens=64, blocks=24, size=4), Scheduling(expected_tokens=1)
    )
    requests = [request(str(i), "x" * 7 + str(i), max_tokens=60) for i in range(8)]
    completions = run(engine, *requests)
    assert engine.metrics.num_preemptions_total > 0
    assert completions == {r.id: alone(r) for r in requests}


def test_budget_and_slots_are_never_exceeded() -> None:
    engine = fake_engine(limits(seqs=3, tokens=5))
    requests = [request(str(i), str(i) * 11, max_tokens=9) for i in range(10)]
    seen: list[tuple[int, int]] = []

    def watch() -> None:
        metrics = engine.metrics
        seen.append((metrics.num_requests_running, metrics.computed_tokens_total))

    list(engine.run(requests, on_step=watch))
    assert max(running for running, _ in seen) == 3
    computed = [tokens for _, tokens in seen]
    assert max(b - a for a, b in pairwise(computed)) == 5


def test_finished_slot_is_filled_in_the_next_step() -> None:
    engine = fake_engine(limits(seqs=2, tokens=64))
    running: list[int] = []
    requests = [
        request("long", max_tokens=20, ignore_eos=True),
        *(request(str(i), str(i), max_tokens=2, ignore_eos=True) for i in range(8)),
    ]
    list(engine.run(requests, on_step=lambda: running.append(engine.metrics.num_requests_running)))
    assert running[1:17] == [2] * 16


def test_requests_are_pulled_only_as_needed() -> None:
    pulled = 0

    def source() -> Iterator[Request]:
        nonlocal pulled
        for i in range(1000):
            pulled += 1
            yield request(str(i), str(i), max_tokens=2)

    completions = fake_engine(limits(seqs=4), Scheduling(max_num_waiting=8)).run(source())
    next(completions)
    assert pulled <= 8 + 4 + 4
    completions.close()  # type: ignore[attr-defined]


def test_completions_come_as_they_end() -> None:
    engine = fake_engine(limits())
    long, short = request("long", max_tokens=30, ignore_eos=True), request("short", max_tokens=1)
    assert [c.request_id for c in engine.run([long, short])] == ["short", "long"]


def test_n_choices_share_the_prompt_and_differ_by_seed_alone() -> None:
    engine = fake_engine(limits(tokens=64))
    wanted = request("r", "p" * 33, n=3, temperature=1.0, seed=5, ignore_eos=True)
    completion = run(engine, wanted)["r"]
    assert [choice.index for choice in completion.choices] == [0, 1, 2]
    assert len({choice.token_ids for choice in completion.choices}) == 3
    assert completion.completion_tokens == 24
    # 33 prompt tokens once, and per sibling what lies behind the shared blocks (33 - 32).
    assert engine.metrics.computed_tokens_total == 33 + 2 * 1 + 3 * 7


def test_greedy_choices_are_all_the_same() -> None:
    completion = run(fake_engine(limits()), request("r", n=3))["r"]
    assert len({choice.text for choice in completion.choices}) == 1


def test_end_of_sequence_stops_and_is_left_out() -> None:
    wanted = request("r", temperature=1.0, seed=1, max_tokens=90)
    [choice] = alone(wanted).choices
    assert choice.finish_reason is FinishReason.STOP
    assert EOS not in choice.token_ids
    assert choice.generated_tokens == len(choice.token_ids) + 1
    assert choice.text == ByteTokenizer().decode(choice.token_ids)


def test_ignore_eos_goes_on_to_max_tokens() -> None:
    [choice] = alone(request("r", temperature=1.0, seed=1, max_tokens=90, ignore_eos=True)).choices
    assert choice.finish_reason is FinishReason.LENGTH
    assert choice.generated_tokens == 90
    assert EOS in choice.token_ids


def test_min_tokens_holds_back_the_end_of_sequence() -> None:
    early = alone(request("r", temperature=1.0, seed=1, max_tokens=90)).choices[0]
    wanted = early.generated_tokens + 5
    [choice] = alone(
        request("r", temperature=1.0, seed=1, max_tokens=90, min_tokens=wanted)
    ).choices
    assert choice.generated_tokens > early.generated_tokens
    assert EOS not in choice.token_ids[:wanted]


def test_stop_string_ends_before_it_across_tokens() -> None:
    [free] = alone(request("r", max_tokens=40, ignore_eos=True)).choices
    stop = free.text[10:14]
    [choice] = alone(request("r", max_tokens=40, ignore_eos=True, stop=("never", stop))).choices
    at = free.text.index(stop)
    assert choice.text == free.text[:at]
    assert choice.token_ids == free.token_ids[:at]
    assert choice.finish_reason is FinishReason.STOP
    assert choice.generated_tokens == at + 4


def test_stop_string_is_not_heeded_before_min_tokens() -> None:
    [free] = alone(request("r", max_tokens=40, ignore_eos=True)).choices
    stop = (free.text[2],)
    options = {"max_tokens": 40, "ignore_eos": True, "stop": stop}
    [choice] = alone(request("r", min_tokens=20, **options)).choices
    assert choice.generated_tokens >= 20
    assert alone(request("r", **options)).choices[0].generated_tokens <= 3


def test_logprobs_cover_the_kept_tokens() -> None:
    [choice] = alone(request("r", logprobs=2, temperature=1.0, seed=9)).choices
    assert choice.logprobs is not None
    assert [entry.token_id for entry in choice.logprobs] == list(choice.token_ids)
    assert all(len(entry.top) == 2 for entry in choice.logprobs)
    assert alone(request("r")).choices[0].logprobs is None


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (Request(id="bad", prompt_token_ids=()), "the prompt is empty"),
        (request("bad", "x" * 90), "90 prompt tokens and max_tokens=8 exceed max_model_len=96"),
    ],
    ids=["empty", "too long"],
)
def test_request_that_cannot_run_fails_alone(wanted: Request, reason: str) -> None:
    completions = run(fake_engine(limits()), request("good"), wanted)
    assert completions["bad"].error == reason
    assert completions["good"] == alone(request("good"))


def test_longest_request_fits_a_pool_that_holds_just_one() -> None:
    engine = fake_engine(limits(seqs=4, blocks=24, size=4))
    requests = [request(str(i), str(i) * 48, max_tokens=48, ignore_eos=True) for i in range(3)]
    assert run(engine, *requests) == {r.id: alone(r) for r in requests}


def test_blocks_that_waiting_siblings_share_make_way() -> None:
    engine = fake_engine(
        limits(seqs=2, tokens=64, blocks=24, size=4),
        Scheduling(policy="fcfs", expected_tokens=1),
    )
    requests = [
        request("growing", "x" * 20, max_tokens=60),
        request("siblings", "y" * 64, n=3, temperature=1.0, max_tokens=30),
    ]
    assert run(engine, *requests) == {r.id: alone(r) for r in requests}
    assert engine.metrics.num_preemptions_total > 0


def test_abort_forgets_requests_and_frees_their_blocks() -> None:
    engine = fake_engine(limits())
    requests = [request(str(i), max_tokens=30, ignore_eos=True) for i in range(6)]
    steps = 0

    def abort_two() -> None:
        nonlocal steps
        steps += 1
        if steps == 3:
            engine.abort({"0", "5"})

    completions = list(engine.run(requests, on_step=abort_two))
    assert {c.request_id for c in completions} == {"1", "2", "3", "4"}


def test_exception_in_on_step_ends_the_run_and_leaves_the_engine_usable() -> None:
    engine = fake_engine(limits())

    def fail() -> None:
        if engine.metrics.steps_total == 2:
            raise KeyError("stop")

    with pytest.raises(KeyError):
        list(engine.run([request("a", max_tokens=30)], on_step=fail))
    assert run(engine, request("b")) == {"b": alone(request("b"))}


def test_pool_smaller_than_one_sequence_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot hold one sequence of max_model_len=96"):
        limits(blocks=23, size=4)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"min_p": 1.5}, "min_p"),
        ({"presence_penalty": 2.1}, "presence_penalty"),
        ({"frequency_penalty": -2.1}, "frequency_penalty"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"repetition_penalty": float("nan")}, "repetition_penalty"),
        ({"logit_bias": ((1, 101.0),)}, "logit_bias"),
        ({"allowed_token_ids": ()}, "allowed_token_ids"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"min_tokens": 9}, "min_tokens"),
        ({"n": 0}, "n must"),
        ({"logprobs": -1}, "logprobs"),
        ({"prompt_logprobs": -1}, "prompt_logprobs"),
        ({"stop": ("",)}, "stop string"),
    ],
)
def test_sampling_params_out_of_range_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        request("r", **wrong)
