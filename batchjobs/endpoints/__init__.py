"""The endpoints that a job may name, by their path."""

from __future__ import annotations

from batchjobs.endpoints.base import Endpoint
from batchjobs.endpoints.chat_completions import ChatCompletions
from batchjobs.endpoints.completions import Completions
from batchjobs.endpoints.embeddings import Embeddings
from batchjobs.endpoints.fields import not_among
from batchjobs.endpoints.responses import Responses

_ALL: tuple[Endpoint, ...] = (ChatCompletions(), Completions(), Embeddings(), Responses())

ENDPOINTS: dict[str, Endpoint] = {endpoint.url: endpoint for endpoint in _ALL}


def find_endpoint(url: str) -> Endpoint:
    """The endpoint at `url`. Raises InvalidRequestError in the public API's words."""
    endpoint = ENDPOINTS.get(url)
    if endpoint is None:
        raise not_among("endpoint", url, tuple(ENDPOINTS))
    return endpoint
