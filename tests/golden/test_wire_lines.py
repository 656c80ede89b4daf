"""Result lines byte for byte, as a client reads them: a change here is a change of the contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchjobs.endpoints import ENDPOINTS
from batchjobs.errors import BatchJobsError
from batchjobs.jsonl import dump_line
from batchjobs.wire import failure_line, success_line, unrun_line
from executor.request import Completion, FinishReason
from tests.support.endpoint import LINE, MODEL, choice, completion

GOLDEN = Path(__file__).parent / "wire"

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
MESSAGES = [{"role": "user", "content": "Hi"}]


def answered(url: str, body: dict[str, Any], *completions: Completion) -> dict[str, Any]:
    endpoint = ENDPOINTS[url]
    request = {"model": "gpt-4o-mini", **body}
    assert len(endpoint.prepare(request, LINE, MODEL)) == len(completions)
    answer = endpoint.respond(request, LINE, MODEL, list(completions))
    return success_line("request-1", LINE.id, answer)


def refused(url: str, body: dict[str, Any]) -> dict[str, Any]:
    with pytest.raises(BatchJobsError) as error:
        ENDPOINTS[url].prepare({"model": "gpt-4o-mini", **body}, LINE, MODEL)
    return failure_line("request-1", LINE.id, error.value)


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
    yield "too_long", refused(CHAT, {"messages": MESSAGES, "max_tokens": 1_000_000})
    yield "bad_parameter", refused(COMPLETIONS, {"prompt": "Once", "temperature": 9})
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
