"""Penalized answers of the real model, token for token as `generate` gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from executor.build import ReadyEngine, build_engine
from executor.loading import Checkpoint
from executor.request import Request, SamplingParams
from executor.settings import EngineSettings
from tests.support.reference import generate

pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]

NEW_TOKENS = 12
PROMPTS = (
    "The cat sat on the mat. The cat sat on the mat. The cat sat on",
    "A list of fruit: apple, apple, apple,",
    "東京は日本の",
)
BIAS = {28: -100.0, 30: 2.5, 260: 6.0}


@pytest.fixture(scope="module")
def ready(default_model: Path) -> ReadyEngine:
    settings = EngineSettings(device="cpu", dtype="float32", max_num_seqs=16, block_size=4)
    return build_engine(Checkpoint(source=str(default_model)), settings)


@pytest.fixture(scope="module")
def reference(default_model: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(default_model, dtype=torch.float32)


def test_greedy_answers_with_penalties_equal_generate(ready: ReadyEngine, reference: Any) -> None:
    prompts = [tuple(ready.tokenizer.encode(prompt)) for prompt in PROMPTS]
    kinds: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"repetition_penalty": 1.3}, {"repetition_penalty": 1.3}),
        (
            {"logit_bias": tuple(BIAS.items()), "repetition_penalty": 0.9},
            {
                "sequence_bias": [[[token], bias] for token, bias in BIAS.items()],
                "repetition_penalty": 0.9,
            },
        ),
        ({"min_tokens": NEW_TOKENS}, {"min_new_tokens": NEW_TOKENS}),
    ]
    requests, expected = [], {}
    for index, prompt in enumerate(prompts):
        for kind, (ours, theirs) in enumerate(kinds):
            name = f"{index} {kind}"
            sampling = SamplingParams(temperature=0, max_tokens=NEW_TOKENS, **ours)
            requests.append(Request(id=name, prompt_token_ids=prompt, sampling=sampling))
            expected[name] = generate(reference, prompt, max_new_tokens=NEW_TOKENS, **theirs)
    answers = {c.request_id: c.choices[0] for c in ready.engine.run(requests)}
    for name, tokens in expected.items():
        without_end = [token for token in tokens if token not in ready.tokenizer.eos_token_ids]
        assert list(answers[name].token_ids) == without_end, name


def test_seeded_answers_are_the_same_alone_and_in_company(ready: ReadyEngine) -> None:
    asked = [
        {"frequency_penalty": 0.8, "presence_penalty": 0.4},
        {"repetition_penalty": 1.2, "top_k": 30},
        {"logit_bias": tuple(BIAS.items()), "min_p": 0.05},
        {},
    ]
    requests = [
        Request(
            id=str(seed),
            prompt_token_ids=tuple(ready.tokenizer.encode(PROMPTS[seed % len(PROMPTS)])),
            sampling=SamplingParams(seed=seed, n=2, max_tokens=10, **asked[seed % len(asked)]),
        )
        for seed in range(8)
    ]
    together = {c.request_id: c for c in ready.engine.run(requests)}
    for request in requests[:4]:
        [alone] = ready.engine.run([request])
        assert alone.choices == together[request.id].choices
