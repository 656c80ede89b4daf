"""A conversation as the model's own template writes it, and the model's turn as it is read."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from batchjobs.endpoints.base import Body, Draft, LineContext, ModelContext, Tokenizer
from batchjobs.endpoints.call_grammars import after_reasoning, answer_grammar, part_of
from batchjobs.endpoints.fields import invalid_value
from batchjobs.endpoints.function_calls import MARKERS, FunctionCall, find_calls
from batchjobs.endpoints.parameters import read_request
from batchjobs.endpoints.reasoning import (
    has_reasoned,
    opens_with_reasoning,
    reasoning_tokens,
    split_reasoning,
)
from batchjobs.endpoints.shapes import Shape
from batchjobs.endpoints.templates import END_OF_THINK, THINK, CallSyntax, ChatTemplate
from batchjobs.endpoints.tools import ToolUse
from batchjobs.errors import InvalidRequestError
from executor.characters import whole_characters
from executor.prompts import PromptText
from executor.request import Choice, FinishReason, Grammar, Request

_SPECIAL = (*MARKERS, THINK, END_OF_THINK)
_MISTRAL_ID_CHARS = 9
_PROBE = [{"role": "user", "content": "?"}]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSettings:
    """What a line says of its conversation beside the messages."""

    template: ChatTemplate
    tools: ToolUse = field(default_factory=ToolUse)
    shape: Shape | None = None
    variables: dict[str, Any] = field(default_factory=dict)
    add_generation_prompt: bool = True
    continue_final_message: bool = False

    def render(
        self, messages: Sequence[dict[str, Any]], tokenizer: Tokenizer, *, param: str
    ) -> str:
        """The prompt; `param` is the body's word for the messages.

        Raises InvalidRequestError when the template refuses them.
        """
        if self.template.syntax is CallSyntax.MISTRAL:
            messages = [_with_mistral_ids(message) for message in messages]
        try:
            return tokenizer.render_chat(
                messages,
                tools=self.tools.definitions,
                add_generation_prompt=self.add_generation_prompt,
                continue_final_message=self.continue_final_message,
                variables=self.variables,
            )
        except ValueError as refusal:
            raise invalid_value(param, str(refusal)) from refusal

    def grammar(self, prompt: str, tokenizer: Tokenizer) -> Grammar | None:
        """What the answer to the prompt must be; None where it may be anything."""
        shape = None if self.shape is None else self.shape.grammar
        grammar = answer_grammar(self.tools, self.template.syntax, shape, tokenizer)
        if grammar is None or not self.template.thinks or has_reasoned(prompt):
            return grammar
        return after_reasoning(grammar, tokenizer, is_open=opens_with_reasoning(prompt))

    def grammar_fault(self, part: str, reason: str) -> InvalidRequestError:
        """The public API's error for a grammar of which this part cannot be used."""
        for number, function in enumerate(self.tools.functions):
            if part == part_of(number):
                return function.fault(reason)
        if self.shape is not None and not self.tools.must_call:
            return self.shape.fault(reason)
        return invalid_value("tools", f"{reason}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The model's turn. `text` is empty where it only calls; `reasoning_tokens` of its tokens
    are the reasoning's. It was `told` what to call where the request named the function."""

    text: str
    reasoning: str | None
    reasoning_tokens: int
    calls: tuple[FunctionCall, ...]
    told: bool = False

    def finish_reason(self, choice: Choice) -> str:
        """As the public API has it: a call that was named in the request is `stop`."""
        called = self.calls and not self.told and choice.finish_reason is FinishReason.STOP
        return "tool_calls" if called else str(choice.finish_reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatBody:
    """A body that is one conversation. `param` and `max_tokens_name` are its words for the messages
    and for the answer's limit."""

    asked: Body
    messages: Sequence[dict[str, Any]]
    settings: ChatSettings
    logprobs: int | None
    param: str
    max_tokens_name: str

    def draft(self, line: LineContext, model: ModelContext) -> Draft:
        """Raises InvalidRequestError as `ChatSettings.render` does."""
        text = self.settings.render(self.messages, model.tokenizer, param=self.param)
        grammar = self.settings.grammar(text, model.tokenizer)

        def finish(encoded: Sequence[list[int]]) -> list[Request]:
            [prompt] = encoded
            if not prompt:
                raise invalid_value(self.param, "the model's chat template makes nothing of it.")
            request = read_request(
                self.asked,
                prompt,
                logprobs=self.logprobs,
                grammar=grammar,
                max_tokens_name=self.max_tokens_name,
                param=self.param,
                line=line,
                model=model,
            )
            return [request]

        # Templates write the special tokens that they want.
        return Draft(prompts=[PromptText(text=text, special_tokens=False)], finish=finish)


def read_turn(choice: Choice, settings: ChatSettings, tokenizer: Tokenizer) -> Turn:
    """Tell reasoning, text and calls of an answer from each other."""
    template, tools = settings.template, settings.tools
    if not template.thinks and not tools.names:
        return Turn(text=choice.text, reasoning=None, reasoning_tokens=0, calls=())
    written = _as_written(choice, tokenizer)
    reasoning, answer = None, written
    if template.thinks:
        is_open = THINK not in written and _opens(settings, tokenizer)
        reasoning, answer = split_reasoning(written, is_open=is_open)
    found = find_calls(answer, template.syntax, tools.names) if tools.names else None
    if found is None:
        text = choice.text if answer == written else answer
        calls: tuple[FunctionCall, ...] = ()
    else:
        text = found.text
        calls = found.calls if tools.parallel else found.calls[:1]
    return Turn(
        text=text,
        reasoning=reasoning,
        reasoning_tokens=reasoning_tokens(choice.token_ids, tokenizer) if reasoning else 0,
        calls=calls,
        told=tools.named,
    )


def call_id(line: LineContext, choice: int, number: int, syntax: CallSyntax) -> str:
    """The id of a call in an answer: the same whenever the line runs."""
    digest = hashlib.blake2b(f"{line.id}:{choice}:{number}".encode(), digest_size=12).hexdigest()
    return digest[:_MISTRAL_ID_CHARS] if syntax is CallSyntax.MISTRAL else f"call_{digest}"


def _as_written(choice: Choice, tokenizer: Tokenizer) -> str:
    """The answer's text, with special tokens by name where the model opens a call with one."""
    text = whole_characters(b"".join(map(tokenizer.token_bytes, choice.token_ids)))
    hidden = any(mark in text and mark not in choice.text for mark in _SPECIAL)
    return text if hidden else choice.text


def _opens(settings: ChatSettings, tokenizer: Tokenizer) -> bool:
    if not settings.add_generation_prompt:
        return False
    try:
        prompt = tokenizer.render_chat(_PROBE, variables=settings.variables)
    except ValueError:
        return False
    return opens_with_reasoning(prompt)


def _with_mistral_ids(message: dict[str, Any]) -> dict[str, Any]:
    """Mistral's templates take ids of nine letters and digits, and no others."""
    changed = dict(message)
    if "tool_call_id" in message:
        changed["tool_call_id"] = _mistral_id(message["tool_call_id"])
    if "tool_calls" in message:
        calls = message["tool_calls"]
        changed["tool_calls"] = [call | {"id": _mistral_id(call["id"])} for call in calls]
    return changed


def _mistral_id(name: str) -> str:
    if len(name) == _MISTRAL_ID_CHARS and name.isascii() and name.isalnum():
        return name
    return hashlib.blake2b(name.encode(), digest_size=8).hexdigest()[:_MISTRAL_ID_CHARS]
