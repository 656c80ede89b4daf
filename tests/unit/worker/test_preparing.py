"""Lines whose prompts are encoded together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from batchjobs.endpoints import ENDPOINTS
from batchjobs.endpoints.base import ModelContext
from batchjobs.errors import BatchJobsError
from batchjobs.shard_lines import ShardLine
from batchjobs.worker.line_work import LineWork
from batchjobs.worker.preparing import BYTES_TOGETHER, LINES_TOGETHER, PreparedLine, prepared
from executor.prompts import PromptText
from tests.support.endpoint import EMBEDDER, LINE, MODEL, encode_marked
from tests.support.tokenizer import TURN_END, ByteTokenizer

CHATS = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
RESPONSES = "/v1/responses"
EMBEDDINGS = "/v1/embeddings"


class Counting(ByteTokenizer):
    """Notes how many texts it is given at a time, and takes none with `bad` in it."""

    def __init__(self, bad: str | None = None) -> None:
        super().__init__()
        self.batches: list[int] = []
        self._bad = bad

    def encode_batch(self, prompts: Sequence[PromptText]) -> list[list[int]]:
        self.batches.append(len(prompts))
        if self._bad is not None and any(self._bad in prompt.text for prompt in prompts):
            raise RuntimeError("a bug")
        return super().encode_batch(prompts)


def work(
    url: str, body: dict[str, Any], *, number: int = 1, size: int = 0, model: ModelContext = MODEL
) -> LineWork:
    line = ShardLine(number=number, size=size, custom_id="a", model="gpt-4o-mini", body=body)
    return LineWork(endpoint=ENDPOINTS[url], line=line, context=LINE, model=model)


def completions(texts: Sequence[str], tokenizer: ByteTokenizer, *, size: int = 0) -> list[LineWork]:
    model = replace(MODEL, tokenizer=tokenizer)
    return [
        work(COMPLETIONS, {"prompt": text}, number=number, size=size, model=model)
        for number, text in enumerate(texts)
    ]


def shown(line: PreparedLine) -> tuple[Any, str | None]:
    return line.requests, None if line.error is None else str(line.error)


HI = [{"role": "user", "content": "Hi"}]
TEXTS: list[tuple[str, dict[str, Any]]] = [
    (CHATS, {"messages": HI}),
    (CHATS, {"messages": HI, "add_generation_prompt": False}),
    (RESPONSES, {"input": "Hi"}),
    (COMPLETIONS, {"prompt": "one"}),
    (COMPLETIONS, {"prompt": ["two", "three"]}),
    (COMPLETIONS, {"prompt": [1, 2, TURN_END]}),
    (COMPLETIONS, {"prompt": [[1], "four", [2, 3]]}),
    (COMPLETIONS, {"prompt": ["five", ""]}),
    (COMPLETIONS, {"prompt": "six", "temperature": 9}),
    (EMBEDDINGS, {"input": "gives no vectors"}),
]
VECTORS: list[tuple[str, dict[str, Any]]] = [
    (EMBEDDINGS, {"input": "one"}),
    (EMBEDDINGS, {"input": ["two", "three"], "add_special_tokens": False}),
    (EMBEDDINGS, {"input": ["seven", "letters"], "truncate_prompt_tokens": 5}),
    (EMBEDDINGS, {"input": "left", "truncate_prompt_tokens": 4, "truncation_side": "left"}),
    (EMBEDDINGS, {"input": [1, 2]}),
    (EMBEDDINGS, {"input": [[1], "four"]}),
    (EMBEDDINGS, {"input": ["five", ""]}),
    (EMBEDDINGS, {"input": "x" * 200}),
    (CHATS, {"messages": HI}),
]


@pytest.mark.parametrize(("lines", "model"), [(TEXTS, MODEL), (VECTORS, EMBEDDER)])
def test_prompts_of_every_form_are_encoded_together_as_they_are_alone(
    lines: list[tuple[str, dict[str, Any]]], model: ModelContext
) -> None:
    together = list(prepared([work(url, body, model=model) for url, body in lines]))
    alone = [next(prepared([work(url, body, model=model)])) for url, body in lines]
    assert [shown(line) for line in together] == [shown(line) for line in alone]
    assert [line.work.expected for line in together] == [len(line.requests) for line in together]
    assert {line.error is None for line in together} == {True, False}


def test_lines_that_follow_each_other_are_encoded_in_one_go() -> None:
    tokenizer = Counting()
    count = 2 * LINES_TOGETHER + 3
    lines = list(prepared(completions(["x"] * count, tokenizer)))
    assert [line.work.line.number for line in lines] == list(range(count))
    assert tokenizer.batches == [LINES_TOGETHER, LINES_TOGETHER, 3]


def test_long_lines_are_not_held_together() -> None:
    tokenizer = Counting()
    assert len(list(prepared(completions("abc", tokenizer, size=BYTES_TOGETHER // 2)))) == 3
    assert tokenizer.batches == [2, 1]
    tokenizer = Counting()
    assert len(list(prepared(completions("abc", tokenizer, size=2 * BYTES_TOGETHER)))) == 3
    assert tokenizer.batches == [1, 1, 1]


def test_inputs_of_several_lines_share_one_go() -> None:
    batches: list[int] = []

    def encode(prompts: Sequence[PromptText]) -> list[list[int]]:
        batches.append(len(prompts))
        return encode_marked(prompts)

    assert EMBEDDER.embedding is not None
    model = replace(EMBEDDER, embedding=replace(EMBEDDER.embedding, encode_batch=encode))
    bodies = [{"input": ["a", "b"]}, {"input": [1]}, {"input": "c"}]
    assert len(list(prepared([work(EMBEDDINGS, body, model=model) for body in bodies]))) == 3
    assert batches == [3]


def test_a_text_that_cannot_be_encoded_fails_its_own_line() -> None:
    good, bad, other = prepared(completions(["good", "bad", "other"], Counting(bad="bad")))
    assert [len(line.requests) for line in (good, bad, other)] == [1, 0, 1]
    assert isinstance(bad.error, BatchJobsError)
    assert "a bug" not in str(bad.error)
    assert good.error is None
    assert bytes(other.requests[0].prompt_token_ids) == b"other"
