"""What a chat template says of its model: how it writes a call, whether it reasons first."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

from batchjobs.endpoints.base import Body, Tokenizer
from batchjobs.endpoints.fields import not_among, read_string, unsupported, wrong_type

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
THINK, END_OF_THINK = "<think>", "</think>"

_SWITCHES = ("enable_thinking", "thinking")
# Names of the renderer's own arguments; a body sets the first four by other parameters.
_RESERVED = frozenset(
    {"messages", "tools", "add_generation_prompt", "continue_final_message", "conversation"}
    | {"chat_template", "tokenize", "sanitize_control_tokens", "padding", "truncation"}
    | {"max_length", "return_tensors", "return_dict", "return_assistant_tokens_mask"}
    | {"tokenizer_kwargs"}
)


class CallSyntax(StrEnum):
    """How a model writes that it calls a function."""

    HERMES = "hermes"
    """`<tool_call>{"name": …, "arguments": …}</tool_call>`, as Qwen does."""
    LLAMA = "llama"
    """`{"name": …, "parameters": …}`, perhaps behind `<|python_tag|>`, several with `;`."""
    MISTRAL = "mistral"
    """`[TOOL_CALLS][{"name": …, "arguments": …}]`, or `[TOOL_CALLS]name[ARGS]{…}`."""
    JSON = "json"
    """A JSON object, or an array of them, that is the whole answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTemplate:
    """`variables` are the names that it reads; `thinks` says that it knows `<think>`."""

    syntax: CallSyntax
    thinks: bool
    variables: frozenset[str]

    @property
    def knows_tools(self) -> bool:
        return "tools" in self.variables


def template_of(tokenizer: Tokenizer) -> ChatTemplate:
    return _recognize(tokenizer.chat_template, tokenizer.template_variables)


def read_variables(
    body: Body, template: ChatTemplate, *, effort: str | None, effort_name: str
) -> dict[str, Any]:
    """What the template is given by name: `chat_template_kwargs`, and what `effort` means to it.

    Raises:
        InvalidRequestError: the template does not read it, so that it would change nothing.
    """
    variables = {} if effort is None else _thinking(effort, effort_name, template)
    return variables | _read_kwargs(body.get("chat_template_kwargs"), template)


def read_effort(body: Body, name: str, where: str = "") -> str | None:
    """How much to reason, one of `EFFORTS`; the field `name` of the body or the object in it."""
    effort = read_string(body, name, where)
    if effort is not None and effort not in EFFORTS:
        raise not_among(f"{where}.{name}" if where else name, effort, EFFORTS)
    return effort


def _thinking(effort: str, name: str, template: ChatTemplate) -> dict[str, Any]:
    switch = next((one for one in _SWITCHES if one in template.variables), None)
    if effort == "none" and switch is not None:
        return {switch: False}
    if "reasoning_effort" in template.variables:
        return {"reasoning_effort": effort}
    if effort == "none" and not template.thinks:
        return {}
    raise unsupported(name, effort)


def _read_kwargs(value: object, template: ChatTemplate) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise wrong_type("chat_template_kwargs", "an object", value)
    for name in value:
        if name in _RESERVED or name not in template.variables:
            raise unsupported(f"chat_template_kwargs.{name}")
    return value


@lru_cache(maxsize=16)
def _recognize(text: str, variables: frozenset[str]) -> ChatTemplate:
    return ChatTemplate(
        syntax=_syntax_of(text),
        thinks=THINK in text or END_OF_THINK in text,
        variables=variables,
    )


def _syntax_of(text: str) -> CallSyntax:
    if "[TOOL_CALLS]" in text:
        return CallSyntax.MISTRAL
    if "<tool_call>" in text:
        return CallSyntax.HERMES
    if "<|python_tag|>" in text or ("<|start_header_id|>" in text and '"parameters"' in text):
        return CallSyntax.LLAMA
    return CallSyntax.JSON
