"""Answers with a grammar in the engine, over `HashModel`."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from executor.constraints import advance
from executor.engine import Engine
from executor.fake import EOS, ByteTokenizer, HashModel, fake_engine
from executor.grammar import GrammarError, Mask, Matcher
from executor.llguidance_grammar import LLGuidance
from executor.request import Choice, Completion, FinishReason, Grammar, GrammarKind, Request
from executor.sampling import token_logprobs
from executor.sequence import Group, Sequence
from executor.settings import Scheduling
from tests.support.engine_runs import alone, limits, request, run

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": 3, "maximum": 120},
        "kind": {"enum": ["alpha", "beta"]},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}


def schema(value: object) -> Grammar:
    return Grammar(kind=GrammarKind.JSON_SCHEMA, text=json.dumps(value))


def choice(*texts: str) -> Grammar:
    return Grammar(kind=GrammarKind.CHOICE, text=json.dumps(texts))


def regex(text: str) -> Grammar:
    return Grammar(kind=GrammarKind.REGEX, text=text)


BAD = regex("a{3")


def person(name: str, prompt: str = "hello", **sampling: Any) -> Request:
    return request(name, prompt, **{"max_tokens": 70, "grammar": schema(PERSON), **sampling})


def only(completion: Completion) -> Choice:
    [answer] = completion.choices
    return answer


def mixed(number: int) -> Iterator[Request]:
    """Requests with and without grammars, of all kinds of sampling."""
    for i in range(number):
        sampling = {"temperature": float(i % 2), "seed": i, "n": 1 + i % 3}
        if i % 4 == 0:
            sampling["logprobs"] = 2
        if i % 3 == 2:
            yield request(str(i), f"free {i}", max_tokens=20, **sampling)
        elif i % 3 == 1:
            yield request(str(i), f"pick {i}", grammar=choice("tea", "teal", "toast"), **sampling)
        else:
            yield person(str(i), f"who {i}", **sampling)


@pytest.mark.parametrize(
    "scheduling", [Scheduling(expected_tokens=1), Scheduling(batching="static")]
)
@pytest.mark.parametrize(("seqs", "tokens", "blocks"), [(6, 64, 40), (3, 5, 24), (8, 16, 26)])
def test_answers_do_not_depend_on_company(
    seqs: int, tokens: int, blocks: int, scheduling: Scheduling
) -> None:
    requests = list(mixed(12))
    engine = fake_engine(limits(seqs=seqs, tokens=tokens, blocks=blocks), scheduling)
    assert run(engine, *requests) == {r.id: alone(r) for r in requests}


def test_preempted_answers_go_on_in_their_grammar() -> None:
    engine = fake_engine(limits(seqs=8, tokens=64, blocks=24), Scheduling(expected_tokens=1))
    requests = [person(str(i), f"x{i}") for i in range(8)]
    assert run(engine, *requests) == {r.id: alone(r) for r in requests}
    assert engine.metrics.num_preemptions_total > 0


def test_an_answer_is_of_its_schema_and_ends_with_it() -> None:
    answer = only(alone(person("a")))
    assert answer.finish_reason is FinishReason.STOP
    assert set(json.loads(answer.text)) == {"name", "age", "kind"}
    assert answer.generated_tokens == len(answer.text)  # no step for an end of sequence


def test_forced_tokens_change_nothing_but_the_steps() -> None:
    plain, stepwise = fake_engine(limits()), fake_engine(limits())
    answer = only(run(plain, person("a"))["a"])
    # With log-probabilities every token is computed by itself.
    other = only(run(stepwise, person("a", logprobs=0))["a"])
    assert (answer.text, answer.token_ids) == (other.text, other.token_ids)
    assert plain.metrics.forced_tokens_total > 20
    assert stepwise.metrics.forced_tokens_total == 0
    saved = stepwise.metrics.steps_total - plain.metrics.steps_total
    assert saved == plain.metrics.forced_tokens_total
    assert plain.metrics.generation_tokens_total == answer.generated_tokens


def test_a_cut_answer_says_so_wherever_it_is_cut() -> None:
    whole = only(alone(person("a")))
    for length in range(1, len(whole.token_ids)):
        cut = only(alone(person("a", max_tokens=length)))
        assert (cut.finish_reason, cut.generated_tokens) == (FinishReason.LENGTH, length)
        assert whole.text.startswith(cut.text)
    exact = only(alone(person("a", max_tokens=len(whole.token_ids))))
    assert exact.finish_reason is FinishReason.STOP


def test_an_answer_may_end_where_its_grammar_may() -> None:
    lengths = {len(only(alone(request(str(i), f"{i}", grammar=regex("[a-z]{2,}"), max_tokens=60,
               temperature=1.0, seed=i))).text) for i in range(12)}  # fmt: skip
    assert min(lengths) >= 2
    assert len(lengths) > 2


@pytest.mark.parametrize("sampling", [{"min_tokens": 40}, {"ignore_eos": True}])
def test_an_answer_that_is_not_to_end_goes_on_while_its_grammar_lets_it(
    sampling: dict[str, Any],
) -> None:
    free = only(alone(request("a", grammar=regex("[a-z]{2,}"), max_tokens=40, **sampling)))
    assert (free.finish_reason, len(free.text)) == (FinishReason.LENGTH, 40)
    whole = only(alone(request("a", grammar=choice("tea", "teal"), max_tokens=40, **sampling)))
    assert (whole.finish_reason, whole.text) == (FinishReason.STOP, "teal")


def test_a_stop_string_cuts_within_forced_tokens() -> None:
    answer = only(alone(person("a", stop=('", "age',))))
    assert answer.finish_reason is FinishReason.STOP
    assert "age" not in answer.text
    assert only(alone(person("a"))).text.startswith(answer.text)


def test_choices_of_one_request_follow_the_grammar_each() -> None:
    answers = alone(person("a", n=4, temperature=1.0, seed=3)).choices
    texts = {answer.text for answer in answers}
    assert len(texts) == 4
    assert all(json.loads(text)["age"] >= 3 for text in texts)


def test_equal_requests_are_equal_in_their_grammars_too() -> None:
    engine = fake_engine(limits())
    requests = [
        person("a"),
        person("b"),
        person("c", grammar=choice("x", "y")),
        person("d", grammar=None),
    ]
    answers = run(engine, *requests)
    assert engine.metrics.num_deduplicated_requests_total == 1
    assert answers["a"].choices == answers["b"].choices
    assert len({only(answers[name]).text for name in "acd"}) == 3


def test_log_probabilities_are_the_models_own() -> None:
    model, seen = HashModel(limits()), []

    class Watched:
        copy_blocks = model.copy_blocks

        def forward(self, spans: Any) -> torch.Tensor:
            seen.append(model.forward(spans))
            return seen[-1].clone()

    tokenizer = ByteTokenizer()
    engine = Engine(Watched(), tokenizer, limits(), library=LLGuidance(tokenizer))
    answer = only(run(engine, request("a", grammar=choice("teal", "toast"), logprobs=3))["a"])
    assert answer.logprobs is not None
    raw = torch.cat(seen)
    assert list(answer.logprobs) == token_logprobs(raw, answer.token_ids, [3] * len(raw))


def test_a_bad_grammar_fails_its_own_request_alone() -> None:
    requests = [person("a"), request("bad", grammar=BAD), request("free")]
    answers = run(fake_engine(limits()), *requests)
    assert (answers["bad"].choices, answers["bad"].grammar_part) == ((), "")
    assert "unclosed counted repetition" in (answers["bad"].error or "")
    assert {name: answers[name] for name in ("a", "free")} == {
        r.id: alone(r) for r in requests[::2]
    }


def test_equal_bad_requests_are_all_refused() -> None:
    answers = run(fake_engine(limits()), *(request(str(i), grammar=BAD) for i in range(3)))
    assert all(answer.error for answer in answers.values())


def test_an_engine_without_a_library_refuses_grammars() -> None:
    engine = Engine(HashModel(limits()), ByteTokenizer(), limits())
    answers = run(engine, request("a", grammar=choice("x")), request("b"))
    assert answers["a"].error == "this engine knows no grammars"
    assert answers["b"].error is None


class Slow(LLGuidance):
    """Compiles when it is let; gives up on an answer after three tokens."""

    def __init__(self) -> None:
        super().__init__(ByteTokenizer())
        self.gate = threading.Event()
        self.patience = 10**9

    def compile(self, grammar: Grammar) -> Any:
        assert self.gate.wait(60)
        return super().compile(grammar)

    def fill(self, matchers: Any, mask: Mask) -> None:
        super().fill(matchers, mask)
        self.patience -= 1
        if self.patience < 0:
            mask[:] = 0
            for matcher in matchers:
                matcher.inner.consume_token(EOS)  # an error that stays


def slow_engine() -> tuple[Slow, Engine]:
    library = Slow()
    return library, Engine(HashModel(limits()), ByteTokenizer(), limits(), library=library)


def test_others_run_while_a_grammar_is_compiled() -> None:
    library, engine = slow_engine()
    order = []
    for completion in engine.run([person("a"), request("b"), request("c", "other")]):
        order.append(completion.request_id)
        if len(order) == 2:
            library.gate.set()
    assert order[2:] == ["a"]


def test_what_is_aborted_while_its_grammar_is_compiled_does_not_run() -> None:
    library, engine = slow_engine()
    names = []
    for completion in engine.run([person("a"), request("b")]):
        names.append(completion.request_id)
        engine.abort(["a"])
        library.gate.set()
    assert names == ["b"]


def test_no_more_is_taken_in_than_can_wait_for_its_grammar() -> None:
    library, engine = slow_engine()
    taken = []

    def requests() -> Iterator[Request]:
        for i in range(100):
            taken.append(i)
            yield person(str(i), grammar=choice(str(i), "x"))

    def let() -> None:
        if len(taken) >= 16:
            library.gate.set()
        assert library.gate.is_set() or len(taken) <= 16

    assert len(list(engine.run(requests(), on_step=let))) == 100


def test_an_answer_that_the_library_gives_up_fails_its_request_alone() -> None:
    library, engine = slow_engine()
    library.gate.set()
    library.patience = 3
    answers = run(engine, person("a", n=2, temperature=1.0, seed=1), request("b", max_tokens=30))
    assert answers["a"].choices == ()
    assert answers["a"].grammar_part == ""
    assert answers["b"] == alone(request("b", max_tokens=30))


def test_the_library_is_never_asked_of_an_answer_that_has_stopped() -> None:
    class Asking(LLGuidance):
        def fill(self, matchers: Any, mask: Mask) -> None:
            stopped: list[Matcher] = [matcher for matcher in matchers if matcher.is_stopped]
            assert not stopped
            super().fill(matchers, mask)
            assert np.any(mask, axis=1).all()

    tokenizer = ByteTokenizer()
    engine = Engine(HashModel(limits()), tokenizer, limits(), library=Asking(tokenizer))
    assert all(c.error is None for c in run(engine, *mixed(9)).values())


def test_a_token_that_no_mask_would_have_let_through_is_told() -> None:
    library = LLGuidance(ByteTokenizer())
    group = Group(request("a", grammar=choice("tea")))
    matcher = library.compile(choice("tea")).matcher()
    sequence = Sequence(group=group, index=0, tokens=[], watcher=None, matcher=matcher)
    with pytest.raises(GrammarError, match="other parameters of the request leave nothing"):
        list(advance(sequence, ord("x")))
