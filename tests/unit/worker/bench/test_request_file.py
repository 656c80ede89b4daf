"""A file of requests as a workload."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from batchjobs.endpoints.base import ModelContext
from batchjobs.errors import InvalidFileError
from batchjobs.worker.bench.request_file import read_requests
from executor.fake import ByteTokenizer
from executor.request import Request

MODEL = ModelContext(name="m", tokenizer=ByteTokenizer(), max_model_len=256, fingerprint="fp")


def line(**changes: Any) -> dict[str, Any]:
    body = {"model": "gpt-4o-mini", "prompt": "Once", "max_tokens": 5, **changes.pop("body", {})}
    return {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": body, **changes}


def read(folder: Path, *lines: Any, count: int | None = None) -> list[Request]:
    path = folder / "own.jsonl"
    path.write_text("".join(f"{json.dumps(value)}\n" for value in lines))
    return read_requests(path, MODEL, count=count, max_line_bytes=1000)


def test_lines_become_requests_with_their_own_parameters(tmp_path: Path) -> None:
    [request] = read(tmp_path, line(body={"temperature": 0.5, "n": 2}))
    assert request.prompt_token_ids == tuple(b"Once")
    assert (request.sampling.max_tokens, request.sampling.n) == (5, 2)
    assert request.sampling.temperature == 0.5


def test_only_the_first_lines_are_read_if_so_asked(tmp_path: Path) -> None:
    assert len(read(tmp_path, line(), line(), {"no": "request"}, count=2)) == 2


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (line(url="/v1/moderations"), "line 2: its url is none of"),
        (line(method="GET"), "line 2: Invalid method 'GET'"),
        (line(body={"prompt": 5}), "line 2: "),
        (line(body={"prompt": "x" * 2000}), "line 2: it is too long"),
        (line(body={"max_tokens": 1000}), "line 2: "),
        ([], "line 2: This line must be a JSON object"),
    ],
)
def test_a_line_that_cannot_run_is_named(tmp_path: Path, wrong: Any, words: str) -> None:
    with pytest.raises(InvalidFileError, match=words):
        read(tmp_path, line(), wrong)


def test_a_file_without_requests_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidFileError, match="has no requests"):
        read(tmp_path)
