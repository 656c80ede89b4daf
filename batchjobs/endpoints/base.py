"""What an endpoint does with one request line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from batchjobs.endpoints.support import Parameter
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
    ) -> list[int]:
        """Token ids of the conversation and the opening of the answer.

        `tools` are function definitions in the public API's shape, `variables` what else the
        template is given by name. `continue_final_message` leaves the last message open; it
        excludes `add_generation_prompt`.

        Raises ValueError with the template's own reason when it refuses the messages.
        """

    def encode(self, text: str) -> list[int]:
        """Token ids of a plain prompt, with the model's own leading special tokens."""

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token stands for; special tokens give their name."""

    @property
    def vocab_size(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelContext:
    """The model a line runs on. `name` is what the line asked for and gets back."""

    name: str
    tokenizer: Tokenizer
    max_model_len: int
    fingerprint: str
    ignore_unknown: bool = False
    """Leave unknown parameters out, where the line would fail otherwise."""
    defaults: Body = field(default_factory=dict)
    """Values of parameters that a body leaves out; an endpoint that lacks one passes it over."""


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


class Endpoint(Protocol):
    """One `/v1/…` path. `check` is part of intake (a problem fails the whole job), `prepare` of
    the run (an error fails the line)."""

    url: str

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """Every parameter that the endpoint knows."""

    def check(self, body: Body) -> LineProblem | None:
        """What the public API finds wrong before it runs anything, or None."""

    def opening(self, body: Body) -> str:
        """What the prompt begins with, for bodies that `check` lets pass: where two of these
        begin alike, so do the prompts."""

    def prepare(self, body: Body, line: LineContext, model: ModelContext) -> list[Request]:
        """The engine requests that answer the body; ids are "0", "1", … in order.

        Raises InvalidRequestError with the public API's parameter and code.
        """

    def respond(
        self, body: Body, line: LineContext, model: ModelContext, completions: list[Completion]
    ) -> Body:
        """The public API's response body; `completions` in the order of `prepare`'s requests."""
