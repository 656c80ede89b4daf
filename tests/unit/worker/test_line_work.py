from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from batchjobs.endpoints import ENDPOINTS
from batchjobs.shard_lines import ShardLine
from batchjobs.worker.line_work import LineWork
from batchjobs.worker.preparing import prepared
from executor.request import Request
from tests.support.endpoint import LINE, MODEL

URL = "/v1/completions"


def work(body: dict[str, Any], defaults: dict[str, Any]) -> LineWork:
    line = ShardLine(
        number=1, size=0, custom_id="a", model="gpt-4o-mini", body={"prompt": "x", **body}
    )
    return LineWork(
        endpoint=ENDPOINTS[URL], line=line, context=LINE, model=replace(MODEL, sampling=defaults)
    )


def asked(body: dict[str, Any], defaults: dict[str, Any]) -> Request:
    [line] = prepared([work(body, defaults)])
    [request] = line.requests
    return request


@pytest.mark.parametrize("body", [{}, {"temperature": None}])
def test_defaults_speak_where_the_line_is_silent(body: dict[str, Any]) -> None:
    request = asked(body, {"temperature": 0.25, "top_k": 3})
    assert (request.sampling.temperature, request.sampling.top_k) == (0.25, 3)


def test_the_lines_own_words_go_before_defaults() -> None:
    request = asked({"temperature": 0}, {"temperature": 0.25})
    assert request.sampling.temperature == 0
