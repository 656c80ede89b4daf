"""Guessed tokens: what is guessed, when, and that no answer knows of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.engine import Engine
from executor.fake import EOS, ByteTokenizer, HashModel, fake_engine
from executor.request import FinishReason, Grammar, GrammarKind, Request, SamplingParams
from executor.sequence import Group, Sequence
from executor.settings import Limits, Scheduling, Speculation
from executor.span import Span
from executor.speculation import Lookup, may_be_speculated, needed_rate, right
from executor.step_time import StepCost
from tests.support.engine_runs import alone, limits, request, run

EAGER = Scheduling(speculation=Speculation(num_speculative_tokens=5, prompt_lookup_min=1))


@pytest.fixture(autouse=True)
def steps_cost_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that every guess pays."""
    monkeypatch.setattr("executor.speculation.needed_rate", lambda cost, share, context: 0.0)


class LoopModel(HashModel):
    """Says a few characters over and over, and now and then something else."""

    def __init__(self, limits: Limits, *, surprise: int = 11) -> None:
        super().__init__(limits)
        self._surprise = surprise

    def _logits(self, table: list[int], end: int):  # type: ignore[no-untyped-def]
        logits = super()._logits(table, end)
        if end % self._surprise:
            logits[ord("abc"[end % 3])] += 30
        return logits


def loop_engine(tight: Limits, scheduling: Scheduling = EAGER) -> Engine:
    return Engine(LoopModel(tight), ByteTokenizer(), tight, scheduling)


def without(wanted: Request) -> object:
    """The answer of an engine that does not guess, without any company."""
    roomy = limits(seqs=16, tokens=512, length=256, blocks=256, size=16)
    return run(loop_engine(roomy, Scheduling()), wanted)[wanted.id]


requests_strategy = st.lists(
    st.builds(
        dict,
        prompt=st.text("abc ", min_size=1, max_size=46),
        seed=st.integers(0, 2**64 - 1),
        n=st.integers(1, 3),
        max_tokens=st.integers(1, 50),
        min_tokens=st.just(0),
        temperature=st.sampled_from([0.0, 1.0]),
        logprobs=st.sampled_from([None, 2]),
        stop=st.sampled_from([(), ("cab",), ("x", "ca")]),
        ignore_eos=st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=40, deadline=None)
@given(
    requests_strategy,
    st.integers(1, 6),
    st.sampled_from([1, 7, 64]),
    st.integers(23, 60),
    st.sampled_from([1, 4, 5]),
)
def test_answers_are_those_of_an_engine_that_does_not_guess(
    wanted: list[dict[str, object]], seqs: int, tokens: int, blocks: int, size: int
) -> None:
    requests = [request(str(i), **w) for i, w in enumerate(wanted)]  # type: ignore[arg-type]
    tight = limits(seqs=seqs, tokens=tokens, blocks=max(blocks, -(-96 // size)), size=size)
    engine = loop_engine(tight, replace(EAGER, expected_tokens=1))
    assert run(engine, *requests) == {r.id: without(r) for r in requests}


def test_answers_of_unforeseeable_text_are_the_same_too() -> None:
    engine = fake_engine(limits(seqs=3, tokens=32), EAGER)
    requests = [request(str(i), "hello " * i + "x", max_tokens=40) for i in range(6)]
    assert run(engine, *requests) == {r.id: alone(r) for r in requests}
    assert engine.metrics.spec_decode_num_draft_tokens_total > 0


def test_text_that_repeats_takes_fewer_steps() -> None:
    wanted = request("r", max_tokens=60, ignore_eos=True)
    steps = {}
    for scheduling in (Scheduling(), EAGER):
        engine = loop_engine(limits(), scheduling)
        run(engine, wanted)
        steps[scheduling] = engine.metrics.steps_total
        metrics = engine.metrics
        computed = metrics.computed_tokens_total - metrics.wasted_tokens_total
        assert computed == len(wanted.prompt_token_ids) + 60 - 1
    assert steps[EAGER] <= steps[Scheduling()] / 2


def test_nothing_is_generated_behind_a_stop_that_was_among_the_guesses() -> None:
    wanted = request("r", "abcabcabcabc", max_tokens=60, ignore_eos=True, stop=("ca",))
    engine = loop_engine(limits(tokens=64))
    completion = run(engine, wanted)["r"]
    assert completion == without(wanted)
    assert completion.choices[0].finish_reason is FinishReason.STOP
    assert engine.metrics.generation_tokens_total == completion.completion_tokens


def test_preemption_and_shared_prefixes_change_nothing() -> None:
    engine = loop_engine(limits(seqs=8, tokens=64, blocks=24), replace(EAGER, expected_tokens=1))
    requests = [request(str(i), "abcabca" * 3 + str(i), max_tokens=60) for i in range(8)]
    completions = run(engine, *requests)
    assert engine.metrics.num_preemptions_total > 0
    assert engine.metrics.prefix_cache_hits_total > 0
    assert engine.metrics.spec_decode_num_accepted_tokens_total > 0
    assert completions == {r.id: without(r) for r in requests}


def test_guesses_push_nobody_out_and_stay_in_the_step() -> None:
    tight = limits(seqs=2, tokens=6, blocks=24)
    engine = loop_engine(tight)
    seen = []

    class Watcher:
        def observe(self, spans: list[Span], scheduler: object) -> None:
            seen.append(sum(span.positions for span in spans))

    engine.watcher = Watcher()  # type: ignore[assignment]
    run(engine, *[request(str(i), max_tokens=60, ignore_eos=True) for i in range(2)])
    assert max(seen) == 6
    assert engine.metrics.num_preemptions_total == 0


def test_static_batches_do_not_guess() -> None:
    engine = loop_engine(limits(), replace(EAGER, batching="static"))
    run(engine, request("r", max_tokens=60))
    assert engine.metrics.spec_decode_num_draft_tokens_total == 0


@pytest.mark.parametrize(
    ("tokens", "guess"),
    [
        ("abcdXabc", "dXab"),
        ("ab1 ab2 ab", "2 ab"),
        ("xab1 yab2 xab", "1 ya"),
        ("ababab", "abab"),
        ("abcdef", ""),
        ("a", ""),
    ],
    ids=["copy", "latest of equals", "longest", "loop", "new", "short"],
)
def test_lookup_guesses_what_followed(tokens: str, guess: str) -> None:
    lookup = Lookup(2, 3)
    growing: list[int] = []
    for token in tokens.encode():
        growing.append(token)
        guessed = lookup.guess(growing, 4)
    assert bytes(guessed) == guess.encode()


@dataclass(frozen=True, kw_only=True)
class FutureParams(SamplingParams):
    presence_penalty: float = 0.0


def test_request_with_a_parameter_that_nobody_knows_is_not_speculated() -> None:
    def asked(sampling: SamplingParams) -> Request:
        return Request(id="r", prompt_token_ids=(1,), sampling=sampling)

    assert may_be_speculated(asked(SamplingParams(temperature=0.5, seed=3, stop=("x",))))
    assert may_be_speculated(asked(FutureParams()))
    assert not may_be_speculated(asked(FutureParams(presence_penalty=0.5)))


@pytest.mark.parametrize(
    ("asked", "may_be"),
    [
        ({"presence_penalty": 0.1}, False),
        ({"frequency_penalty": -0.1}, False),
        ({"repetition_penalty": 1.1}, False),
        ({"grammar": Grammar(kind=GrammarKind.REGEX, text="a+")}, False),
        ({"logit_bias": ((1, 1.0),), "allowed_token_ids": (1,)}, True),
        ({"prompt_logprobs": 0, "min_tokens": 1, "stop_token_ids": (4,)}, True),
    ],
)
def test_what_looks_at_the_tokens_before_is_not_speculated(
    asked: dict[str, Any], may_be: bool
) -> None:
    made = Request(id="r", prompt_token_ids=(1,), sampling=SamplingParams(**asked))
    assert may_be_speculated(made) == may_be


def test_rows_behind_a_wrong_guess_are_dropped() -> None:
    first, second = (Sequence(Group(request(n)), 0, [1, 2], None) for n in "ab")
    spans = [Span(first, 1, 1, draft=(5, 6, 7)), Span(second, 1, 1)]
    rows = [(span, ahead) for span in spans for ahead in range(span.rows)]
    assert right(rows, [5, 6, 9, 7, 1]) == [0, 1, 2, 4]
    assert right(rows, [4, 6, 7, 7, 1]) == [0, 4]
    assert right(rows, [5, 6, 7, EOS, 1]) == [0, 1, 2, 3, 4]


def test_guesses_must_be_better_the_less_they_save() -> None:
    cost = StepCost(fixed=27, position=1, attended=0.001)
    assert needed_rate(cost, 1, 100) < 0.05
    assert 0.6 < needed_rate(cost, 1 / 64, 100) < 0.75
    assert needed_rate(cost, 1 / 8, 5000) > needed_rate(cost, 1 / 8, 100)
    assert needed_rate(cost, 0.0, 100) == 1
