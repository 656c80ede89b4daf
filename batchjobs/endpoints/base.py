"""What an endpoint does with one request line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from batchjobs.endpoints.support import Parameter
from batchjobs.errors import InvalidRequestError
from executor.prompts import PromptText
from executor.request import Completion, Request

Body = dict[str, Any]


class Tokenizer(Protocol):
    """The part of a model's tokenizer that endpoints need (`executor.text` has the real one)."""

    @property
    def chat_template(self) -> str:
        """The model's template as text, by which its family is known; empty without one."""

    @property
    def template_variables(self) -> frozenset[str]:
        """The names that the template reads: what is not among them cannot change a prompt."""

    def render_chat(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        tools: Sequence[dict[str, Any]] = (),
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The conversation and the opening of the answer, special tokens by name.

        `tools` are function definitions in the public API's shape, `variables` what else the
        template is given by name. `continue_final_message` leaves the last message open; it
        excludes `add_generation_prompt`.

        Raises ValueError with the template's own reason when it refuses the messages.
        """

    def encode(self, text: str) -> list[int]:
        """Token ids of a plain prompt, with the model's own leading special tokens."""

    def encode_batch(self, prompts: Sequence[PromptText]) -> list[list[int]]:
        """Token ids of each: the same as alone, and sooner."""

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token stands for; special tokens give their name."""

    def special_token_id(self, name: str) -> int | None:
        """The token that is written as `name` and stands for no text, if there is one."""

    @property
    def vocab_size(self) -> int: ...


class Task(StrEnum):
    """What a model is for, and what an endpoint needs one for; the words are vLLM's."""

    GENERATE = "generate"
    EMBED = "embed"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingFacts:
    """What is special about a model that embeds. `encode_batch` gives token ids of texts; its
    vectors have `dimensions` numbers, and may be cut to those of `matryoshka`: None to none, ()
    to any. `prompts` are its own, by name, and are part of what is pooled if it `pools_prompt`."""

    encode_batch: Callable[[Sequence[PromptText]], list[list[int]]]
    dimensions: int
    matryoshka: tuple[int, ...] | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)
    pools_prompt: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelContext:
    """The model a line runs on. `name` is what the line asked for and gets back; `sampling` are
    parameters by name as the model's generation config has them, for lines that leave them out."""

    name: str
    tokenizer: Tokenizer
    max_model_len: int
    fingerprint: str
    sampling: Mapping[str, float] = field(default_factory=dict)
    ignore_unknown: bool = False
    """Leave unknown parameters out, where the line would fail otherwise."""
    embedding: EmbeddingFacts | None = None
    """None for a model that generates text."""

    @property
    def task(self) -> Task:
        return Task.GENERATE if self.embedding is None else Task.EMBED

    def encode_batch(self, prompts: Sequence[PromptText]) -> list[list[int]]:
        """Token ids of each."""
        encoder = self.tokenizer if self.embedding is None else self.embedding
        return encoder.encode_batch(prompts)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineContext:
    """What the answer to a line is keyed by: `id` 32 hex digits, `created` unix seconds of the
    job, `seed` for lines that name none. All survive a restart."""

    id: str
    created: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LineProblem:
    """Why intake refuses a line: the public API's code, message and parameter."""

    code: str
    message: str
    param: str | None


Prompt = PromptText | list[int]
"""What has no token ids yet, or these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A body that is read, but for the token ids of its `prompts`.

    `finish` takes those, in order, and gives the engine requests that answer the body; their ids
    are "0", "1", … in order. It raises as `Endpoint.draft`.
    """

    prompts: Sequence[Prompt]
    finish: Callable[[Sequence[list[int]]], list[Request]]


class Endpoint(Protocol):
    """One `/v1/…` path. `check` is part of intake (a problem fails the whole job), `draft` of
    the run (an error fails the line)."""

    url: str
    task: Task

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """Every parameter that the endpoint knows."""

    def check(self, body: Body) -> LineProblem | None:
        """What the public API finds wrong before it runs anything, or None."""

    def opening(self, body: Body) -> str:
        """What the prompt begins with, for bodies that `check` lets pass: where two of these
        begin alike, so do the prompts."""

    def draft(self, body: Body, line: LineContext, model: ModelContext) -> Draft:
        """What the body asks of the engine; prompts of several bodies are encoded together.

        Raises InvalidRequestError with the public API's parameter and code.
        """

    def respond(
        self, body: Body, line: LineContext, model: ModelContext, completions: list[Completion]
    ) -> Body:
        """The public API's response body; `completions` in the order of the draft's requests."""


def check_task(endpoint: Endpoint, model: ModelContext) -> None:
    """Raise InvalidRequestError if the model is not for what the endpoint gives."""
    if endpoint.task is model.task:
        return
    what = {
        Task.EMBED: "gives embeddings and generates no text: its endpoint is /v1/embeddings",
        Task.GENERATE: "generates text and gives no embeddings: /v1/embeddings needs another",
    }[model.task]
    message = f"The model '{model.name}' does not support {endpoint.url}: it {what}."
    raise InvalidRequestError(message, param="model", code="unsupported_model")
