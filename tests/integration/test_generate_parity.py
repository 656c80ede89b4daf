"""Greedy answers of the real model, token for token as transformers gives them one at a time."""

from __future__ import annotations

from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from executor.build import ReadyEngine, build_engine
from executor.forecast import Forecast
from executor.loading import Checkpoint
from executor.request import Choice, Request, SamplingParams
from executor.settings import EngineSettings
from tests.support.prompts import chat_ids
from tests.support.reference import generate

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

NEW_TOKENS = 20
SUBJECTS = (
    "the moon", "2 + 2 * 10", "a haiku about rain", "how bread rises", "Paris in 1889",
    "sorting a list in Python", "why the sky is blue", "žluťoučký kůň", "the word 'set'",
    "prime numbers below 50", "a letter to a landlord", "photosynthesis", "{\"a\": [1, 2]}",
    "the colour of 7 apples", "东京", "a very short story",
)  # fmt: skip
FORMS = (
    "Tell me about {}.",
    "{}",
    "Explain {} to a child, then to an expert, and say where the two explanations differ. "
    + "Be careful and precise. " * 8,
    "Write one sentence on {} and nothing else!",
)
PROMPTS = [form.format(subject) for subject in SUBJECTS for form in FORMS]

CONFIGURATIONS = {
    "defaults": {},
    "one at a time": {"max_num_seqs": 1},
    "small chunks": {"max_num_seqs": 16, "max_num_batched_tokens": 24},
    "preempting": {"max_num_seqs": 32, "block_size": 4, "max_model_len": 240,
                   "kv_cache_memory": 200 * 4 * 46_080},
    "guessing at every step": {"max_num_seqs": 12, "prompt_lookup_min": 1},
    "never guessing": {"num_speculative_tokens": 0},
    "sdpa": {"attention_backend": "sdpa", "max_num_seqs": 24},
}  # fmt: skip


@pytest.fixture(scope="module")
def prompts(default_model: Path) -> list[tuple[int, ...]]:
    ready = build(default_model, max_num_seqs=1)
    return [
        tuple(chat_ids(ready.tokenizer, [{"role": "user", "content": prompt}]))
        for prompt in PROMPTS
    ]


@pytest.fixture(scope="module")
def reference(default_model: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(default_model, dtype=torch.float32)


@pytest.fixture(scope="module")
def expected(
    default_model: Path, reference: Any, prompts: list[tuple[int, ...]]
) -> list[list[int]]:
    """What `generate` appends to each prompt, end of sequence included.

    The engine guesses, and the reference has to confirm every token of it: that takes one pass a
    prompt, where `generate` makes one a token.
    """
    ready = build(default_model)
    eos = ready.tokenizer.eos_token_ids
    found = []
    for prompt, guess in zip(prompts, greedily(ready, prompts), strict=True):
        told = confirmed(reference, prompt, guess.token_ids, eos)
        found.append(generated(reference, prompt) if told is None else told)
    return found


def confirmed(
    reference: Any, prompt: tuple[int, ...], guess: tuple[int, ...], eos: Set[int]
) -> list[int] | None:
    """The guess and its end, if each token is the likeliest after those before it."""
    with torch.inference_mode():
        logits = reference(torch.tensor([prompt + guess])).logits[0, len(prompt) - 1 :]
    *likeliest, after = logits.argmax(dim=-1).tolist()
    is_ended = len(guess) == NEW_TOKENS or after in eos
    if tuple(likeliest) != guess or not is_ended or not eos.isdisjoint(guess):
        return None
    return [*likeliest, after][:NEW_TOKENS]


def generated(reference: Any, prompt: tuple[int, ...]) -> list[int]:
    return generate(reference, prompt, max_new_tokens=NEW_TOKENS)


def greedily(ready: ReadyEngine, prompts: Sequence[tuple[int, ...]]) -> list[Choice]:
    sampling = SamplingParams(temperature=0, max_tokens=NEW_TOKENS)
    requests = [
        Request(id=str(i), prompt_token_ids=prompt, sampling=sampling)
        for i, prompt in enumerate(prompts)
    ]
    found = {c.request_id: c.choices[0] for c in ready.engine.run(requests)}
    return [found[request.id] for request in requests]


@pytest.fixture(autouse=True)
def admission_without_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one, nobody is preempted, and that is to change nothing."""
    monkeypatch.setattr(Forecast, "fits", lambda forecast, free: free >= 0)


def build(folder: Path, **settings: Any) -> ReadyEngine:
    options = {"device": "cpu", "dtype": "float32", **settings}
    return build_engine(Checkpoint(source=str(folder)), EngineSettings(**options))


@pytest.mark.parametrize(
    "every", [pytest.param(1, marks=pytest.mark.slow, id="all"), pytest.param(9, id="some")]
)
def test_confirmed_guesses_are_what_generate_appends(
    reference: Any, prompts: list[tuple[int, ...]], expected: list[list[int]], every: int
) -> None:
    assert [generated(reference, prompt) for prompt in prompts[::every]] == expected[::every]


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_greedy_tokens_equal_generate(
    name: str,
    default_model: Path,
    prompts: list[tuple[int, ...]],
    expected: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert len(prompts) == 64
    # What is slow says little after a few.
    count = {"one at a time": 8, "never guessing": 16, "sdpa": 24}.get(name, len(prompts))
    if name == "guessing at every step":
        monkeypatch.setattr("executor.speculation.needed_rate", lambda cost, share, context: 0.0)
    ready = build(default_model, **CONFIGURATIONS[name])
    eos = ready.tokenizer.eos_token_ids
    for i, answer in enumerate(greedily(ready, prompts[:count])):
        without_end = [token for token in expected[i] if token not in eos]
        assert list(answer.token_ids) == without_end, PROMPTS[i]
        assert answer.generated_tokens == len(expected[i])
    metrics = ready.engine.metrics
    assert (metrics.num_preemptions_total > 0) == (name == "preempting")
    if name == "guessing at every step":
        assert metrics.spec_decode_num_accepted_tokens_total > 50
        assert metrics.wasted_tokens_total > 50


def test_sampled_answers_do_not_depend_on_company_or_preemption(
    default_model: Path, prompts: list[tuple[int, ...]]
) -> None:
    requests = [
        Request(
            id=str(i),
            prompt_token_ids=prompt,
            sampling=SamplingParams(temperature=0.8, top_p=0.95, seed=i, n=2, max_tokens=12),
        )
        for i, prompt in enumerate(prompts[:24])
    ]
    answers = []
    for name in ("defaults", "preempting"):
        engine = build(default_model, **CONFIGURATIONS[name]).engine
        completions = {c.request_id: c for c in engine.run(requests)}
        answers.append([[c.token_ids for c in completions[r.id].choices] for r in requests])
    assert answers[0] == answers[1]
