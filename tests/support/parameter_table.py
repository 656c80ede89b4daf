"""`python -m tests.support.parameter_table`: writes `docs/parameters.md`.

The rows are the fields of the request bodies that the installed `openai` package knows, then the
extensions that an endpoint here knows; what is said of them comes from the endpoints' own tables,
by which bodies are checked.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from openai.types import completion_create_params, embedding_create_params
from openai.types.chat import completion_create_params as chat_create_params
from openai.types.responses import response_create_params

from batchjobs.endpoints import ENDPOINTS
from batchjobs.endpoints.support import Parameter, Support

DOCUMENT = Path(__file__).parents[2] / "docs" / "parameters.md"

BODIES: dict[str, Any] = {
    "/v1/chat/completions": chat_create_params.CompletionCreateParamsNonStreaming,
    "/v1/completions": completion_create_params.CompletionCreateParamsNonStreaming,
    "/v1/responses": response_create_params.ResponseCreateParamsNonStreaming,
    "/v1/embeddings": embedding_create_params.EmbeddingCreateParams,
}
"""The public API's body of each endpoint."""

_HEAD = (
    "# Parameters\n\n"
    "What becomes of every parameter of a request body. This page is made by `scripts/parameters`"
    " from the tables that bodies are checked by and the request types of the `openai` package; a"
    " test fails when they differ, also when a new version of that package has a new parameter.\n"
    "\n"
    "| word | meaning |\n"
    "|---|---|\n"
    "| supported | honoured as in the public API, or as in vLLM; the note says what is beyond or"
    " short of that |\n"
    "| accepted, without effect | any value is taken: it says nothing about the answer |\n"
    "| refused | the line fails with `unsupported_parameter`, which names the parameter; values"
    " that ask for nothing are listed, and accepted |\n"
    "\n"
    "A null is an absent parameter. A parameter that is not on this page fails its line with"
    " `unknown_parameter`; with `BATCHJOBS_IGNORE_UNKNOWN=true` it is left out instead, as is an"
    " unknown key of a message, a content part or a tool. What is refused stays refused.\n"
)


def fields(url: str) -> list[str]:
    """The public body's fields, by name."""
    body = BODIES[url]
    return sorted(body.__required_keys__ | body.__optional_keys__)


def render() -> str:
    return "\n".join([_HEAD, *(_section(url) for url in BODIES)])


def _section(url: str) -> str:
    head = f"## {url}\n"
    endpoint = ENDPOINTS[url]
    extensions = sorted(set(endpoint.parameters) - set(fields(url)))
    return "\n".join(
        [
            head,
            *_table(fields(url), endpoint.parameters),
            "",
            "Extensions, most of them vLLM's:\n",
            *_table(extensions, endpoint.parameters),
            "",
        ]
    )


def _table(names: list[str], parameters: Mapping[str, Parameter]) -> Iterator[str]:
    yield "| parameter | is | note |"
    yield "|---|---|---|"
    for name in names:
        parameter = parameters.get(name, Parameter(support=Support.REFUSED))
        yield f"| `{name}` | {parameter.support} | {_note(parameter)} |"


def _note(parameter: Parameter) -> str:
    off = ", ".join(f"`{json.dumps(value)}`" for value in parameter.off)
    return "; ".join(part for part in (off and f"but {off}", parameter.note) if part)


def main() -> int:
    DOCUMENT.write_text(render(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
