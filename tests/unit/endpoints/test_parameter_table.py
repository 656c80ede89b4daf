"""`docs/parameters.md` says of every parameter what becomes of it, and the code does that."""

from __future__ import annotations

from typing import Any

import pytest

from batchjobs.endpoints import ENDPOINTS
from batchjobs.endpoints.base import Task
from batchjobs.endpoints.support import Support
from batchjobs.errors import InvalidRequestError
from tests.support.endpoint import EMBEDDER, LINE, MODEL
from tests.support.parameter_table import BODIES, DOCUMENT, fields, render

GOOD: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
    "/v1/completions": {"model": "m", "prompt": "Hi"},
    "/v1/responses": {"model": "m", "input": "Hi"},
    "/v1/embeddings": {"model": "m", "input": "Hi"},
}
_STRANGE = {"no": "endpoint takes this"}


@pytest.mark.parametrize("url", BODIES)
def test_every_parameter_of_the_public_api_is_known(url: str) -> None:
    assert set(fields(url)) <= set(ENDPOINTS[url].parameters)


def test_the_page_is_as_the_tables_and_the_public_types_say() -> None:
    assert DOCUMENT.read_text() == render(), "run scripts/parameters"


def test_every_endpoint_is_on_the_page() -> None:
    assert set(ENDPOINTS) == set(BODIES)


def prepare(url: str, name: str, value: object) -> object:
    endpoint = ENDPOINTS[url]
    model = EMBEDDER if endpoint.task is Task.EMBED else MODEL
    return endpoint.prepare(GOOD[url] | {name: value}, LINE, model)


@pytest.mark.parametrize(
    ("url", "name"), [(url, name) for url in ENDPOINTS for name in ENDPOINTS[url].parameters]
)
def test_a_parameter_is_what_its_row_says(url: str, name: str) -> None:
    parameter = ENDPOINTS[url].parameters[name]
    if parameter.support is Support.NO_EFFECT:
        assert prepare(url, name, _STRANGE) == prepare(url, name, None)
        return
    if parameter.support is Support.HONOURED:
        assert name in {"model", "prompt_cache_options", "guided_json"} or _is_read(url, name)
        return
    assert all(prepare(url, name, off) == prepare(url, name, None) for off in parameter.off)
    with pytest.raises(InvalidRequestError) as refused:
        prepare(url, name, _STRANGE)
    assert (refused.value.code, refused.value.param) == ("unsupported_parameter", name)


def _is_read(url: str, name: str) -> bool:
    """A value that no parameter has fails the line, under the parameter's name."""
    with pytest.raises(InvalidRequestError) as refused:
        prepare(url, name, _STRANGE)
    return (refused.value.param or "").startswith(name)
