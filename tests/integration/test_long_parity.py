"""Long greedy answers behind a long shared prefix, as transformers' eager attention gives them.

Every fast path is switched off in turn: each combination must give the same tokens.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from executor.attention.base import PackedBatch
from executor.attention.cascade import SharedPrefix, shared_prefixes
from executor.build import FastPaths, ReadyEngine, build_engine
from executor.loading import Checkpoint
from executor.request import Request, SamplingParams
from executor.settings import EngineSettings
from tests.support.prompts import chat_ids

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

NEW_TOKENS = 200
RULES = " ".join(
    f"Rule {number}: when a question is about {subject}, give {count} facts and one example."
    for number, (subject, count) in enumerate(
        [
            ("rivers", "two"), ("bread", "three"), ("the moon", "four"), ("old ships", "two"),
            ("prime numbers", "five"), ("the weather", "three"), ("trains", "two"),
            ("painters of the north", "four"), ("salt", "three"), ("birds in winter", "two"),
            ("maps", "three"), ("clocks and their makers", "four"), ("glass", "two"),
            ("mountain roads", "three"), ("letters to the editor", "two"), ("tea", "four"),
        ],
        start=1,
    )
)  # fmt: skip
QUESTIONS = (
    "How is bread made?",
    "What is the moon made of, and who was there first?",
    "Name the longest rivers of Asia.",
    "Why do clocks tick?",
    "Tell me about birds in winter, and where they go when it snows.",
)


@pytest.fixture(scope="module")
def reference(default_model: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(
        default_model, dtype=torch.float32, attn_implementation="eager"
    )


def prompts(ready: ReadyEngine) -> list[tuple[int, ...]]:
    return [
        tuple(
            chat_ids(
                ready.tokenizer,
                [{"role": "system", "content": RULES}, {"role": "user", "content": question}],
            )
        )
        for question in QUESTIONS
    ]


def answers(ready: ReadyEngine, given: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    sampling = SamplingParams(temperature=0, max_tokens=NEW_TOKENS, ignore_eos=True)
    requests = [
        Request(id=str(i), prompt_token_ids=prompt, sampling=sampling)
        for i, prompt in enumerate(given)
    ]
    found = {c.request_id: tuple(c.choices[0].token_ids) for c in ready.engine.run(requests)}
    return [found[request.id] for request in requests]


def likeliest(reference: Any, prompt: tuple[int, ...], answer: tuple[int, ...]) -> list[int]:
    """The token that the reference finds likeliest at each place of the answer.

    If that is the answer itself, then it is what greedy decoding gives.
    """
    with torch.inference_mode():
        logits = reference(torch.tensor([prompt + answer]), use_cache=False).logits[0]
    tokens: list[int] = logits[len(prompt) - 1 : -1].argmax(dim=-1).tolist()
    return tokens


@pytest.mark.parametrize(
    "switched_off",
    [
        None,
        *(pytest.param(field.name, marks=pytest.mark.slow) for field in fields(FastPaths)),
    ],
)
def test_long_answers_behind_a_shared_prefix_equal_eager_greedy(
    switched_off: str | None,
    default_model: Path,
    reference: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups: list[SharedPrefix] = []

    def noted(batch: PackedBatch, block_size: int) -> list[SharedPrefix]:
        found = shared_prefixes(batch, block_size)
        groups.extend(found)
        return found

    monkeypatch.setattr("executor.attention.cpu.shared_prefixes", noted)
    fast = FastPaths(**{} if switched_off is None else {switched_off: False})
    settings = EngineSettings(device="cpu", dtype="float32")
    ready = build_engine(Checkpoint(source=str(default_model)), settings, fast)
    given = prompts(ready)
    assert len({prompt[:300] for prompt in given}) == 1
    for prompt, answer in zip(given, answers(ready, given), strict=True):
        assert len(answer) == NEW_TOKENS
        assert list(answer) == likeliest(reference, prompt, answer)
    assert bool(groups) == (switched_off != "cascade")
