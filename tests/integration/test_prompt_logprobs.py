"""Log-probabilities of the real model's prompts and answers, beside transformers' own."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from batchjobs.endpoints import ENDPOINTS
from batchjobs.endpoints.base import LineContext, ModelContext
from batchjobs.endpoints.drafts import prepare_alone
from executor.build import ReadyEngine, build_engine
from executor.loading import Checkpoint
from executor.request import Completion, Request, SamplingParams
from executor.settings import EngineSettings

pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]

FEWSHOT = "Question: How many legs has a spider?\nAnswer: eight\n\n" * 6
PROMPTS = (
    FEWSHOT + "Question: How many legs has a cat?\nAnswer: four",
    FEWSHOT + "Question: How many legs has a cat?\nAnswer: seven",
    FEWSHOT + "Question: Is the sky green?\nAnswer: no",
    "The naïve 東京 🙂 test",
    "x",
)
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "chunks": {"max_num_seqs": 2, "max_num_batched_tokens": 24},
}


@pytest.fixture(scope="module")
def engines(default_model: Path) -> Callable[[str], ReadyEngine]:
    @cache
    def build(name: str) -> ReadyEngine:
        settings = EngineSettings(device="cpu", dtype="float32", **CONFIGURATIONS[name])
        return build_engine(Checkpoint(source=str(default_model)), settings)

    return build


@pytest.fixture(scope="module")
def reference(default_model: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(default_model, dtype=torch.float32).eval()


@torch.inference_mode()
def own_logprobs(reference: Any, tokens: tuple[int, ...]) -> torch.Tensor:
    """[T, V]: in the row of each token the log-probabilities of the next."""
    logits: torch.Tensor = reference(torch.tensor([tokens])).logits[0]
    return logits.double().log_softmax(dim=-1)


TIE = 1e-4
"""Log-probabilities nearer than this may be in either order."""


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_logprobs_equal_a_float64_log_softmax(
    name: str, engines: Callable[[str], ReadyEngine], reference: Any
) -> None:
    ready = engines(name)
    requests = [
        Request(
            id=str(index),
            prompt_token_ids=tuple(ready.tokenizer.encode(prompt)),
            sampling=SamplingParams(
                temperature=0, max_tokens=index % 2 * 6, logprobs=2, prompt_logprobs=3
            ),
        )
        for index, prompt in enumerate(PROMPTS)
    ]
    completions = {c.request_id: c for c in ready.engine.run(requests)}
    for request in requests:
        check(completions[request.id], request, reference)
    assert ready.engine.metrics.prefix_cache_hits_total > 100


def check(completion: Completion, request: Request, reference: Any) -> None:
    prompt, [answer] = request.prompt_token_ids, completion.choices
    assert completion.prompt_logprobs is not None
    assert answer.logprobs is not None
    given = [*completion.prompt_logprobs, *answer.logprobs]
    tokens = (*prompt, *answer.token_ids)
    assert tuple(position.token_id for position in given) == tokens[1:]
    expected = own_logprobs(reference, tokens)[:-1]
    for position, row in zip(given, expected, strict=True):
        assert position.logprob == pytest.approx(row[position.token_id].item(), abs=1e-4)
        own = row[position.token_id]
        surely, perhaps = (int((row > own + by).sum()) + 1 for by in (TIE, -TIE))
        assert surely <= position.rank <= perhaps
        best = row.topk(len(position.top))
        assert [token for token, _ in position.top] == best.indices.tolist()
        assert [v for _, v in position.top] == pytest.approx(best.values.tolist(), abs=1e-4)


def test_a_line_scores_a_continuation_as_harnesses_ask(
    engines: Callable[[str], ReadyEngine], reference: Any
) -> None:
    ready = engines("defaults")
    endpoint = ENDPOINTS["/v1/completions"]
    line = LineContext(id="0" * 32, created=0, seed=1)
    model = ModelContext(name="m", tokenizer=ready.tokenizer, max_model_len=2048, fingerprint="fp")
    contexts = [FEWSHOT + "Question: Is ice cold?\nAnswer:"] * 2
    prompts = [
        ready.tokenizer.encode(context + word)
        for context, word in zip(contexts, (" yes", " banana"), strict=True)
    ]
    body = {"model": "m", "prompt": prompts, "max_tokens": 0, "echo": True, "logprobs": 1}
    completions = {
        c.request_id: c for c in ready.engine.run(prepare_alone(endpoint, body, line, model))
    }
    answer = endpoint.respond(body, line, model, [completions["0"], completions["1"]])
    for prompt, choice in zip(prompts, answer["choices"], strict=True):
        expected = own_logprobs(reference, tuple(prompt))
        logprobs = choice["logprobs"]
        assert logprobs["token_logprobs"][0] is logprobs["top_logprobs"][0] is None
        assert logprobs["token_logprobs"][1:] == pytest.approx(
            [expected[i, token].item() for i, token in enumerate(prompt[1:])], abs=1e-4
        )
        assert "".join(logprobs["tokens"]) == choice["text"]
    yes, banana = (choice["logprobs"]["token_logprobs"][-1] for choice in answer["choices"])
    assert yes > banana
    assert answer["usage"]["completion_tokens"] == 0
