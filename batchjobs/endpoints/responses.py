"""`/v1/responses`: text or items in, output items out. Nothing is kept for a later request."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from batchjobs.endpoints.answers import check_answered, token_logprobs, usage
from batchjobs.endpoints.base import Body, Draft, LineContext, LineProblem, ModelContext, Task
from batchjobs.endpoints.chats import ChatBody, ChatSettings, Turn, call_id, read_turn
from batchjobs.endpoints.fields import (
    check_keys,
    invalid_value,
    read_integer,
    read_string,
    unsupported,
    wrong_type,
)
from batchjobs.endpoints.openings import opening_of
from batchjobs.endpoints.parameters import (
    CACHE_OPTIONS,
    COMMON,
    check_body,
    read_honoured,
    refuse_prewarm,
)
from batchjobs.endpoints.response_input import read_input
from batchjobs.endpoints.samplers import MAX_TOP_LOGPROBS, SAMPLING
from batchjobs.endpoints.shapes import Shape, read_format, read_shape, several_shapes
from batchjobs.endpoints.support import Parameter, honoured, no_effect, refused
from batchjobs.endpoints.templates import read_effort, read_variables, template_of
from batchjobs.endpoints.tool_choice import ToolShape
from batchjobs.endpoints.tools import read_tools
from executor.request import Choice, Completion, FinishReason

_FUNCTIONS = ToolShape(
    key=None,
    extras=frozenset({"output_schema"}),
    refused=frozenset({"defer_loading", "allowed_callers", "async"}),
)
_LOGPROBS = "message.output_text.logprobs"
_NOTHING_KEPT = "nothing is kept between requests"


class Responses:
    url = "/v1/responses"
    task = Task.GENERATE
    parameters: Mapping[str, Parameter] = {
        **COMMON,
        **SAMPLING,
        **CACHE_OPTIONS,
        "input": honoured(
            "a string, or items: messages of text, reasoning, function calls and their outputs"
        ),
        "instructions": honoured("a system message before the input"),
        "max_output_tokens": honoured("without it, an answer may fill the context"),
        "include": honoured(f"`{_LOGPROBS}`; others are refused by name"),
        "top_logprobs": honoured(f"0 to {MAX_TOP_LOGPROBS}, with `{_LOGPROBS}` included"),
        "text": honoured("`format`, as `response_format` of chats; no `verbosity`"),
        "tools": honoured(
            "functions, for models whose template knows tools, refused by name otherwise;"
            " a call of a `strict` one is kept to its schema"
        ),
        "tool_choice": honoured("`none`, `auto`, `required`, a function, `allowed_tools`"),
        "parallel_tool_calls": honoured("`false` allows one call"),
        "reasoning": honoured("`effort`, as `reasoning_effort` of chats; no `summary`"),
        "chat_template_kwargs": honoured("names that the model's template reads"),
        "max_tool_calls": no_effect("it is about built-in tools, of which there are none"),
        "image": no_effect("it is about images, which are refused themselves"),
        "background": refused(False),
        "background_options": refused(),
        "previous_response_id": refused(note=_NOTHING_KEPT),
        "conversation": refused(note=_NOTHING_KEPT),
        "prompt": refused(note=_NOTHING_KEPT),
        "context_management": refused([]),
        "truncation": refused("disabled"),
        "access_programs": refused(),
    }

    def check(self, body: Body) -> LineProblem | None:
        return check_body(body, "Responses", prompt="input")

    def opening(self, body: Body) -> str:
        return opening_of([body.get("instructions"), body.get("input")], tools=body.get("tools"))

    def draft(self, body: Body, line: LineContext, model: ModelContext) -> Draft:
        asked = read_honoured(body, self.parameters, ignore_unknown=model.ignore_unknown)
        refuse_prewarm(asked)
        chat = ChatBody(
            asked=asked,
            messages=read_input(asked, ignore_unknown=model.ignore_unknown),
            settings=_settings(asked, model),
            logprobs=_read_logprobs(asked),
            param="input",
            max_tokens_name="max_output_tokens",
        )
        return chat.draft(line, model)

    def respond(
        self, body: Body, line: LineContext, model: ModelContext, completions: list[Completion]
    ) -> Body:
        settings = _settings(body, model)
        check_answered(completions, settings.grammar_fault)
        (completion,) = completions
        (choice,) = completion.choices
        turn = read_turn(choice, settings, model.tokenizer)
        is_cut = choice.finish_reason is FinishReason.LENGTH
        return {
            "id": f"resp_{line.id}",
            "object": "response",
            "created_at": line.created,
            "status": "incomplete" if is_cut else "completed",
            "background": False,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "model": model.name,
            "output": _items(turn, choice, settings, line, model),
            "previous_response_id": None,
            "service_tier": "default",
            "store": False,
            "text": {"format": _format(body) or {"type": "text"}, "verbosity": "medium"},
            "truncation": "disabled",
            "usage": _usage(completion, turn),
            "system_fingerprint": model.fingerprint,
            **_asked(body, model),
        }


def _asked(body: Body, model: ModelContext) -> dict[str, Any]:
    """What the public API says again of a request, with its defaults or the model's."""
    defaults: dict[str, Any] = {
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "prompt_cache_key": None,
        "safety_identifier": None,
        "temperature": model.sampling.get("temperature", 1.0),
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": model.sampling.get("top_p", 1.0),
        "user": None,
    }
    said = {name: body.get(name) for name in defaults}
    reasoning = body.get("reasoning") or {}
    return {
        **{name: defaults[name] if value is None else value for name, value in said.items()},
        "reasoning": {"effort": reasoning.get("effort"), "summary": None},
    }


def _settings(body: Body, model: ModelContext) -> ChatSettings:
    template = template_of(model.tokenizer)
    reasoning = body.get("reasoning")
    if reasoning is None:
        reasoning = {}
    if not isinstance(reasoning, dict):
        raise wrong_type("reasoning", "an object", reasoning)
    for name in reasoning:
        if name != "effort" and reasoning[name] is not None:
            raise unsupported(f"reasoning.{name}")
    effort = read_effort(reasoning, "effort", "reasoning")
    return ChatSettings(
        template=template,
        tools=read_tools(body, _FUNCTIONS, template, ignore_unknown=model.ignore_unknown),
        shape=_read_shape(body, ignore_unknown=model.ignore_unknown),
        variables=read_variables(body, template, effort=effort, effort_name="reasoning.effort"),
    )


def _read_shape(body: Body, *, ignore_unknown: bool) -> Shape | None:
    """Of `text`, or of vLLM's words; text is of the usual length."""
    text = body.get("text")
    if text is not None:
        if not isinstance(text, dict):
            raise wrong_type("text", "an object", text)
        check_keys("text", text, ("format", "verbosity"), ignore_unknown=ignore_unknown)
        verbosity = read_string(text, "verbosity", "text")
        if verbosity not in (None, "medium"):
            raise unsupported("text.verbosity", verbosity)
    shape = read_shape(body, ignore_unknown=ignore_unknown)
    form = _format(body)
    asked = (
        None if form is None else read_format("text.format", form, ignore_unknown=ignore_unknown)
    )
    if shape is not None and asked is not None:
        raise several_shapes(shape.param, "text.format")
    return shape or asked


def _format(body: Body) -> Any:
    return (body.get("text") or {}).get("format")


def _read_logprobs(body: Body) -> int | None:
    """How many alternatives to return per token, None for no log-probabilities at all."""
    include = body.get("include", [])
    if not isinstance(include, list):
        raise wrong_type("include", "an array of strings", include)
    for index, wanted in enumerate(include):
        if not isinstance(wanted, str):
            raise wrong_type(f"include[{index}]", "a string", wanted)
        if wanted != _LOGPROBS:
            raise unsupported(f"include[{index}]", wanted)
    alternatives = read_integer(body, "top_logprobs", 0, MAX_TOP_LOGPROBS)
    if include:
        return alternatives or 0
    if alternatives:
        raise invalid_value("top_logprobs", f"it needs '{_LOGPROBS}' in 'include'.")
    return None


def _items(
    turn: Turn, choice: Choice, settings: ChatSettings, line: LineContext, model: ModelContext
) -> list[dict[str, Any]]:
    items = []
    if turn.reasoning is not None:
        items.append(_reasoning_item(turn.reasoning, line))
    if turn.text or not turn.calls:
        items.append(_message_item(turn, choice, line, model))
    for number, call in enumerate(turn.calls):
        items.append(
            {
                "id": _item_id("fc", line, number),
                "type": "function_call",
                "status": "completed",
                "call_id": call_id(line, choice.index, number, settings.template.syntax),
                "name": call.name,
                "arguments": call.arguments,
            }
        )
    return items


def _reasoning_item(reasoning: str, line: LineContext) -> dict[str, Any]:
    return {
        "id": _item_id("rs", line),
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": reasoning}],
    }


def _message_item(
    turn: Turn, choice: Choice, line: LineContext, model: ModelContext
) -> dict[str, Any]:
    is_cut = choice.finish_reason is FinishReason.LENGTH
    return {
        "id": _item_id("msg", line),
        "type": "message",
        "status": "incomplete" if is_cut else "completed",
        "role": "assistant",
        "content": [
            {
                "type": "output_text",
                "text": turn.text,
                "annotations": [],
                "logprobs": token_logprobs(choice, model.tokenizer),
            }
        ],
    }


def _item_id(prefix: str, line: LineContext, number: int = 0) -> str:
    digest = hashlib.blake2b(f"{line.id}:{prefix}:{number}".encode(), digest_size=16)
    return f"{prefix}_{digest.hexdigest()}"


def _usage(completion: Completion, turn: Turn) -> dict[str, Any]:
    counted = usage([completion])
    return {
        "input_tokens": counted["prompt_tokens"],
        "input_tokens_details": {
            "cached_tokens": counted["prompt_tokens_details"]["cached_tokens"],
            "cache_write_tokens": 0,
        },
        "output_tokens": counted["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": turn.reasoning_tokens},
        "total_tokens": counted["total_tokens"],
    }
