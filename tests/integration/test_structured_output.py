"""Answers of the real model to many schemas: each that is not cut is valid, says `jsonschema`.

`schemas.json` lists them. The model is far too small to know what to write; only the grammar keeps
it to the schemas.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from executor.build import ReadyEngine, build_engine
from executor.loading import Checkpoint
from executor.request import Choice, FinishReason, Grammar, GrammarKind, Request, SamplingParams
from executor.settings import EngineSettings
from tests.support.prompts import chat_ids

pytestmark = [pytest.mark.model, pytest.mark.timeout(1800)]

SCHEMAS: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "support" / "schemas.json").read_text()
)
SAMPLE = (
    "object_flat",
    "enum_unicode",
    "array_of_objects",
    "any_of_objects",
    "one_of_discriminator",
    "ref_defs",
    "pattern_unicode_class",
    "object_odd_keys",
    "number_multiple",
    "format_date",
    "pydantic_open",
    "open_any_of",
    "open_one_of",
)


@pytest.fixture(scope="module")
def ready(default_model: Path) -> ReadyEngine:
    return build_engine(Checkpoint(source=str(default_model)), EngineSettings())


def ask(
    ready: ReadyEngine, names: tuple[str, ...], **sampling: Any
) -> Iterator[tuple[str, Choice]]:
    """Each schema's answer, as it ends."""

    def request(name: str) -> Request:
        message = {"role": "user", "content": f"Write {name.replace('_', ' ')} as JSON."}
        grammar = Grammar(kind=GrammarKind.JSON_SCHEMA, text=json.dumps(SCHEMAS[name]))
        params: dict[str, Any] = {"temperature": 0.0, "seed": 7, "max_tokens": 200, **sampling}
        return Request(
            id=name,
            prompt_token_ids=tuple(chat_ids(ready.tokenizer, [message])),
            sampling=SamplingParams(grammar=grammar, **params),
        )

    for completion in ready.engine.run(map(request, names)):
        assert completion.error is None, (completion.request_id, completion.error)
        yield completion.request_id, completion.choices[0]


def check(name: str, answer: Choice) -> bool:
    """Whether the answer is whole; then it is valid."""
    if answer.finish_reason is FinishReason.LENGTH:
        return False
    jsonschema.validate(json.loads(answer.text), SCHEMAS[name])
    return True


def test_answers_of_a_few_schemas_are_valid(ready: ReadyEngine) -> None:
    assert all(check(name, answer) for name, answer in ask(ready, SAMPLE))
    assert ready.engine.metrics.forced_tokens_total > 50


def test_forced_tokens_are_those_that_would_have_been_sampled(ready: ReadyEngine) -> None:
    names = SAMPLE[:4]
    forced = {name: answer.token_ids for name, answer in ask(ready, names)}
    # With log-probabilities every token is computed by itself.
    assert {name: a.token_ids for name, a in ask(ready, names, logprobs=0)} == forced


@pytest.mark.slow
def test_answers_of_every_schema_are_valid(ready: ReadyEngine) -> None:
    """Greedy answers may go round in circles until they are cut, so that they are sampled too."""
    names = tuple(SCHEMAS)
    whole = {name for name, answer in ask(ready, names) if check(name, answer)}
    whole |= {name for name, answer in ask(ready, names, temperature=1.0) if check(name, answer)}
    assert len(whole) >= 100


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_forced_tokens_change_no_answer(ready: ReadyEngine, temperature: float) -> None:
    names = tuple(SCHEMAS)
    forced = {n: a.token_ids for n, a in ask(ready, names, temperature=temperature, max_tokens=60)}
    every = ask(ready, names, temperature=temperature, max_tokens=60, logprobs=0)
    assert {name: answer.token_ids for name, answer in every} == forced
