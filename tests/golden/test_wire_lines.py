"""Result lines byte for byte, as a client reads them: a change here is a change of the contract."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from openai.types import Completion as CompletionBody
from openai.types import CreateEmbeddingResponse
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from batchjobs.endpoints import ENDPOINTS
from batchjobs.endpoints.base import ModelContext
from batchjobs.endpoints.drafts import prepare_alone
from batchjobs.errors import BatchJobsError
from batchjobs.jsonl import dump_line
from batchjobs.wire import failure_line, success_line, unrun_line
from executor.request import Completion, FinishReason
from tests.support import chat_templates
from tests.support.endpoint import EMBEDDER, LINE, MODEL, choice, completion
from tests.support.tokenizer import ByteTokenizer

GOLDEN = Path(__file__).parent / "wire"

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
RESPONSES = "/v1/responses"
EMBEDDINGS = "/v1/embeddings"
MESSAGES = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "add"}}
SCHEMA = {"type": "object", "not": {}}
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}}
IMAGE_INPUT = {"type": "input_image", "image_url": "https://example.org/cat.png"}
QWEN3 = replace(
    MODEL,
    tokenizer=ByteTokenizer(chat_templates.QWEN3, variables=["tools", "enable_thinking"]),
    max_model_len=1000,
)
THOUGHT = b"<think>\n1 and 1\n</think>\n\n"
CALL = b'<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


def answered(
    url: str, body: dict[str, Any], *completions: Completion, model: ModelContext = MODEL
) -> dict[str, Any]:
    endpoint = ENDPOINTS[url]
    request = {"model": "gpt-4o-mini", **body}
    assert len(prepare_alone(endpoint, request, LINE, model)) == len(completions)
    answer = endpoint.respond(request, LINE, model, list(completions))
    return success_line("request-1", LINE.id, answer)


def refused(url: str, body: dict[str, Any], model: ModelContext = MODEL) -> dict[str, Any]:
    with pytest.raises(BatchJobsError) as error:
        prepare_alone(ENDPOINTS[url], {"model": "gpt-4o-mini", **body}, LINE, model)
    return failure_line("request-1", LINE.id, error.value)


def named(name: str) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": SCHEMA}}


def unusable(
    url: str, body: dict[str, Any], *, part: str = "", model: ModelContext = MODEL
) -> dict[str, Any]:
    """A line whose grammar the engine could not use."""
    reason = 'Unimplemented keys: ["not"]'
    failed = Completion(request_id="0", prompt_tokens=7, error=reason, grammar_part=part)
    request = {"model": "gpt-4o-mini", **body}
    assert len(prepare_alone(ENDPOINTS[url], request, LINE, model)) == 1
    with pytest.raises(BatchJobsError) as error:
        ENDPOINTS[url].respond(request, LINE, model, [failed])
    return failure_line("request-1", LINE.id, error.value)


def faults() -> Iterator[tuple[str, dict[str, Any]]]:
    yield "too_long", refused(CHAT, {"messages": MESSAGES, "max_tokens": 1_000_000})
    long = [{"role": "user", "content": "x" * 200}]
    yield "prompt_too_long", refused(CHAT, {"messages": long})
    yield "input_too_long", refused(RESPONSES, {"input": "Hi", "max_output_tokens": 1_000_000})
    yield "bad_parameter", refused(COMPLETIONS, {"prompt": "Once", "temperature": 9})
    yield "wrong_type", refused(CHAT, {"messages": MESSAGES, "temperature": "hot"})
    yield "unknown_parameter", refused(CHAT, {"messages": MESSAGES, "temprature": 1})
    yield "unsupported_parameter", refused(CHAT, {"messages": MESSAGES, "bad_words": ["x"]})
    yield "penalty_too_large", refused(CHAT, {"messages": MESSAGES, "presence_penalty": 2.5})
    yield "bias_unknown_token", refused(COMPLETIONS, {"prompt": "Hi", "logit_bias": {"999": 1}})
    yield "bias_too_large", refused(CHAT, {"messages": MESSAGES, "logit_bias": {"5": -101}})
    yield "bias_wrong_type", refused(CHAT, {"messages": MESSAGES, "logit_bias": [5]})
    yield "stop_token_unknown", refused(COMPLETIONS, {"prompt": "Hi", "stop_token_ids": [1, -1]})
    yield "too_many_logprobs", refused(COMPLETIONS, {"prompt": "Hi", "logprobs": 21})
    yield (
        "min_tokens_too_many",
        refused(CHAT, {"messages": MESSAGES, "max_tokens": 2, "min_tokens": 3}),
    )
    yield (
        "echo_too_long",
        refused(COMPLETIONS, {"prompt": "x" * 101, "echo": True, "max_tokens": 0}),
    )
    yield "image_input", refused(RESPONSES, {"input": [{"role": "user", "content": [IMAGE_INPUT]}]})
    yield "wrong_role", refused(CHAT, {"messages": [{"role": "human", "content": "Hi"}]})
    yield "image", refused(CHAT, {"messages": [{"role": "user", "content": [IMAGE]}]})
    choice_of = {"type": "function", "function": {"name": "sub"}}
    yield (
        "unknown_tool",
        refused(CHAT, {"messages": MESSAGES, "tools": [TOOL], "tool_choice": choice_of}),
    )
    yield (
        "response_format",
        refused(CHAT, {"messages": MESSAGES, "response_format": {"type": "xml"}}),
    )
    yield "schema_name", refused(CHAT, {"messages": MESSAGES, "response_format": named("my event")})
    yield "bad_schema", unusable(CHAT, {"messages": MESSAGES, "response_format": named("event")})
    yield (
        "bad_schema_responses",
        unusable(
            RESPONSES,
            {
                "input": "Hi",
                "text": {"format": named("event")["json_schema"] | {"type": "json_schema"}},
            },
        ),
    )
    strict = {"type": "function", "function": {"name": "add", "strict": True}}
    yield (
        "bad_parameters",
        unusable(CHAT, {"messages": MESSAGES, "tools": [strict]}, part="function0", model=QWEN3),
    )
    yield "bad_guided", unusable(COMPLETIONS, {"prompt": "Once", "guided_json": SCHEMA})
    yield "tools_untaught", refused(CHAT, {"messages": MESSAGES, "tools": [TOOL]})
    yield "embedding_too_long", refused(EMBEDDINGS, {"input": ["Hi", "x" * 99]}, EMBEDDER)
    yield "embedding_dimensions", refused(EMBEDDINGS, {"input": "Hi", "dimensions": 2}, EMBEDDER)
    yield "not_kept", refused(RESPONSES, {"input": "Hi", "previous_response_id": "resp_1"})


def lines() -> Iterator[tuple[str, dict[str, Any]]]:
    hello = choice("Hello\u2028world".encode())
    cut = choice(b"Hey", index=1, finish_reason=FinishReason.LENGTH)
    yield "chat", answered(CHAT, {"messages": MESSAGES, "n": 2}, completion(hello, cut))
    yield (
        "chat_logprobs",
        answered(
            CHAT,
            {"messages": MESSAGES, "logprobs": True, "top_logprobs": 2},
            completion(choice("é".encode(), alternatives=2)),
        ),
    )
    yield (
        "completions",
        answered(
            COMPLETIONS,
            {"prompt": ["Once", "Twice"], "logprobs": 2},
            completion(choice(b"up", alternatives=2), prompt_tokens=4),
            completion(choice("é!".encode(), alternatives=2), prompt_tokens=5),
        ),
    )
    yield (
        "chat_tool_call",
        answered(
            CHAT,
            {"messages": MESSAGES, "tools": [TOOL]},
            completion(choice(THOUGHT + CALL)),
            model=QWEN3,
        ),
    )
    yield (
        "chat_named_tool",
        answered(
            CHAT,
            {
                "messages": MESSAGES,
                "tools": [TOOL],
                "tool_choice": {"type": "function", "function": {"name": "add"}},
            },
            completion(choice(CALL)),
            model=QWEN3,
        ),
    )
    yield (
        "responses_schema",
        answered(
            RESPONSES,
            {"input": "Hi", "text": {"format": {"type": "json_object"}}},
            completion(choice(b'{"a": 1}')),
        ),
    )
    yield (
        "completions_echo",
        answered(
            COMPLETIONS, {"prompt": ["Once", [84, 104]], "echo": True}, *[completion(hello)] * 2
        ),
    )
    yield (
        "completions_scored",
        answered(
            COMPLETIONS,
            {"prompt": "é!", "echo": True, "logprobs": 1, "max_tokens": 0},
            replace(
                completion(
                    replace(
                        choice(b"", alternatives=1, finish_reason=FinishReason.LENGTH),
                        generated_tokens=0,
                    )
                ),
                prompt_logprobs=choice("é!".encode(), alternatives=1).logprobs[1:],  # type: ignore[index]
            ),
        ),
    )
    yield (
        "chat_prompt_logprobs",
        answered(
            CHAT,
            {"messages": MESSAGES, "prompt_logprobs": 1},
            replace(completion(hello), prompt_logprobs=choice(b"Hi", alternatives=2).logprobs),
        ),
    )
    yield (
        "responses",
        answered(RESPONSES, {"input": "Hi", "temperature": 0}, completion(hello)),
    )
    yield (
        "responses_tool_call",
        answered(
            RESPONSES,
            {"input": "Hi", "tools": [{"type": "function", "name": "add"}]},
            completion(choice(THOUGHT + b"Let me see." + CALL)),
            model=QWEN3,
        ),
    )
    vector = struct.pack("<3f", 0.1, -2.5, 1e-7)
    yield (
        "embeddings",
        answered(
            EMBEDDINGS,
            {"input": ["Hi", "you"]},
            *[Completion(request_id="", prompt_tokens=4, embedding=vector)] * 2,
            model=EMBEDDER,
        ),
    )
    yield (
        "embeddings_base64",
        answered(
            EMBEDDINGS,
            {"input": "Hi", "encoding_format": "base64"},
            Completion(request_id="", prompt_tokens=4, embedding=vector),
            model=EMBEDDER,
        ),
    )
    yield from faults()
    yield (
        "unrun",
        unrun_line(
            "request-1",
            LINE.id,
            "batch_expired",
            "This request could not be executed before the completion window expired.",
        ),
    )


@pytest.mark.parametrize(("name", "line"), [pytest.param(*pair, id=pair[0]) for pair in lines()])
def test_a_result_line_is_as_recorded(name: str, line: dict[str, Any]) -> None:
    assert dump_line(line).decode() == (GOLDEN / f"{name}.jsonl").read_bytes().decode()


_TYPES = {
    "chat.completion": ChatCompletion,
    "text_completion": CompletionBody,
    "response": Response,
    "list": CreateEmbeddingResponse,
}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(line["response"]["body"], id=name)
        for name, line in lines()
        if line["response"]
        and line["response"]["status_code"] == 200
        and "base64" not in name
        # The first token of an echo has null, from the public API too, whose types do not say so.
        and name != "completions_scored"
    ],
)
def test_an_answer_is_what_the_public_types_say(body: dict[str, Any]) -> None:
    _TYPES[body["object"]].model_validate(json.loads(dump_line(body)))
