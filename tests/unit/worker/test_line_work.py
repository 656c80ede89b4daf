from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from batchjobs.endpoints import ENDPOINTS
from batchjobs.shard_lines import ShardLine
from batchjobs.worker.line_work import LineWork
from tests.support.endpoint import LINE, MODEL

URL = "/v1/completions"


def work(body: dict[str, Any], defaults: dict[str, Any]) -> LineWork:
    line = ShardLine(
        number=1, size=0, custom_id="a", model="gpt-4o-mini", body={"prompt": "x", **body}
    )
    return LineWork(
        endpoint=ENDPOINTS[URL], line=line, context=LINE, model=replace(MODEL, defaults=defaults)
    )


@pytest.mark.parametrize("body", [{}, {"temperature": None}])
def test_defaults_speak_where_the_line_is_silent(body: dict[str, Any]) -> None:
    (request,) = work(body, {"temperature": 0.25, "top_k": 3}).prepare()
    assert (request.sampling.temperature, request.sampling.top_k) == (0.25, 3)


def test_the_lines_own_words_go_before_defaults() -> None:
    (request,) = work({"temperature": 0}, {"temperature": 0.25}).prepare()
    assert request.sampling.temperature == 0


def test_a_default_that_the_endpoint_does_not_know_is_passed_over() -> None:
    (request,) = work({}, {"reasoning_effort": "high"}).prepare()
    assert request.sampling.temperature == 1
