"""Log-probabilities of prompts: each token's once, whoever computes it and however often."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from executor import prompt_scores
from executor.engine import Engine
from executor.fake import HashModel, fake_engine
from executor.request import Completion, FinishReason, Request
from executor.settings import Scheduling
from tests.support.engine_runs import alone, limits, request, run

ROOMY = limits(seqs=8, tokens=64, length=256, blocks=400, size=4)


def scoring(name: str, prompt: str, **sampling: object) -> Request:
    return request(name, prompt, **{"max_tokens": 0, "prompt_logprobs": 2, **sampling})


def scored_rows(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows of each step were scored, as it goes."""
    counts: list[int] = []
    model: HashModel = engine._model  # type: ignore[assignment]
    logits_at = model.logits_at

    def watch(rows: list[int]) -> torch.Tensor:
        counts.append(len(rows))
        return logits_at(rows)

    score = prompt_scores.score_prompts

    def score_prompts(*args: object) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(model, "logits_at", watch)
            score(*args)  # type: ignore[arg-type]

    monkeypatch.setattr("executor.engine.score_prompts", score_prompts)
    return counts


def last_logprob(prompt: str) -> float:
    """Of the prompt's last token, when no more than it is scored."""
    scores = alone(scoring("one", prompt, prompt_logprobs=0)).prompt_logprobs
    assert scores is not None
    return scores[-1].logprob


def test_every_prompt_token_but_the_first_has_its_own() -> None:
    completion = run(fake_engine(ROOMY), scoring("a", "hello world"))["a"]
    scores = completion.prompt_logprobs
    assert scores is not None
    assert bytes(score.token_id for score in scores) == b"ello world"
    prefixes = ["hello world"[:length] for length in range(2, 12)]
    assert [score.logprob for score in scores] == list(map(last_logprob, prefixes))
    assert all(len(score.top) == 2 for score in scores)
    assert completion.cached_tokens == completion.completion_tokens == 0


def test_nothing_is_generated_for_a_prompt_that_is_only_scored() -> None:
    engine = fake_engine(ROOMY)
    completion = run(engine, scoring("a", "hello", n=2, temperature=1.0))["a"]
    for choice in completion.choices:
        assert (choice.token_ids, choice.text, choice.generated_tokens) == ((), "", 0)
        assert choice.finish_reason is FinishReason.LENGTH
    assert engine.metrics.generation_tokens_total == 0
    assert engine.metrics.computed_tokens_total == 5


def test_a_prompt_of_one_token_has_nothing_to_score() -> None:
    assert run(fake_engine(ROOMY), scoring("a", "h"))["a"].prompt_logprobs == ()


def test_an_answer_is_the_same_with_its_prompt_scored() -> None:
    plain = alone(request("a", "hello", temperature=1.0, n=3))
    scored = alone(scoring("a", "hello", temperature=1.0, n=3, max_tokens=8))
    assert scored.choices == plain.choices
    assert plain.prompt_logprobs is None


def test_a_prompt_is_scored_once_for_all_its_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    for prompt in ("hey", "p" * 33):
        engine = fake_engine(ROOMY)
        counts = scored_rows(engine, monkeypatch)
        run(engine, scoring("a", prompt, n=4, temperature=1.0, max_tokens=4))
        assert sum(counts) == len(prompt) - 1


def test_a_prompt_is_scored_once_however_often_it_is_preempted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tight = limits(seqs=8, tokens=64, blocks=24, size=4)
    engine = fake_engine(tight, Scheduling(expected_tokens=1))
    counts = scored_rows(engine, monkeypatch)
    requests = [scoring(str(i), f"{i}" + "x" * 7, max_tokens=60) for i in range(8)]
    assert run(engine, *requests) == {r.id: alone(r) for r in requests}
    assert engine.metrics.num_preemptions_total > 0
    assert sum(counts) == 8 * 7


def test_a_common_beginning_is_computed_and_scored_once(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = fake_engine(ROOMY)
    counts = scored_rows(engine, monkeypatch)
    requests = [scoring(str(i), "p" * 64 + chr(65 + i) * 12) for i in range(6)]
    check: Callable[[], None] = lambda: engine._scheduler.check_blocks()  # noqa: E731
    completions = {c.request_id: c for c in engine.run(requests, on_step=check)}
    # What follows the common part comes of its last token, which each computes with its block.
    assert sum(counts) == 75 + 5 * 12
    assert engine.metrics.computed_tokens_total == 76 + 5 * (12 + 4)
    assert completions == {r.id: alone(r) for r in requests}


def test_a_plain_prompt_is_not_taken_for_a_scored_one() -> None:
    prompt = "p" * 40
    requests = [
        request("plain", prompt + "a"),
        scoring("scored", prompt + "b"),
        scoring("more", prompt + "c", prompt_logprobs=5),
        request("again", prompt + "d"),
    ]
    assert run(fake_engine(ROOMY), *requests) == {r.id: alone(r) for r in requests}


def test_an_equal_request_gets_the_scores_of_the_first() -> None:
    engine = fake_engine(limits(seqs=1), Scheduling(max_num_waiting=1, policy="fcfs"))
    requests = [scoring("a", "hello"), scoring("b", "other"), scoring("c", "hello")]
    requests += [request("plain", "hello", max_tokens=0)]
    assert run(engine, *requests) == {r.id: alone(r) for r in requests}
    assert engine.metrics.num_deduplicated_requests_total == 1


@pytest.mark.parametrize("batching", ["static", "continuous"])
@pytest.mark.parametrize("caching", [True, False])
def test_scores_are_the_same_however_requests_are_batched(batching: str, caching: bool) -> None:
    scheduling = Scheduling(batching=batching, enable_prefix_caching=caching)  # type: ignore[arg-type]
    requests = [scoring(str(i), "p" * 20 + "ab" * i, max_tokens=i % 3, n=2) for i in range(9)]
    assert run(fake_engine(limits(), scheduling), *requests) == {r.id: alone(r) for r in requests}


def test_logits_are_held_slice_by_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_scores, "SLICE_NUMBERS", 259 * 5)
    engine = fake_engine(ROOMY)
    counts = scored_rows(engine, monkeypatch)
    sliced: Completion = run(engine, scoring("a", "p" * 62))["a"]
    assert counts == [5] * 12 + [1]
    monkeypatch.undo()
    assert sliced == alone(scoring("a", "p" * 62))
