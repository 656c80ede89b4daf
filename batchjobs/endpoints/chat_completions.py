"""`/v1/chat/completions`: messages in, one assistant message per choice out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from batchjobs.endpoints.answers import check_answered, prompt_logprobs, token_logprobs, usage
from batchjobs.endpoints.base import Body, Draft, LineContext, LineProblem, ModelContext, Task
from batchjobs.endpoints.chats import ChatBody, ChatSettings, Turn, call_id, read_turn
from batchjobs.endpoints.fields import invalid_value, read_boolean, read_integer
from batchjobs.endpoints.messages import read_messages
from batchjobs.endpoints.openings import opening_of
from batchjobs.endpoints.parameters import (
    CACHE_OPTIONS,
    CHOICES,
    COMMON,
    check_body,
    read_honoured,
    refuse_prewarm,
)
from batchjobs.endpoints.samplers import MAX_TOP_LOGPROBS, SAMPLING
from batchjobs.endpoints.shapes import RESPONSE_FORMAT, read_shape
from batchjobs.endpoints.support import Parameter, honoured, no_effect, refused
from batchjobs.endpoints.templates import read_effort, read_variables, template_of
from batchjobs.endpoints.tool_choice import ToolShape
from batchjobs.endpoints.tools import read_tools
from batchjobs.errors import InvalidRequestError
from executor.request import Choice, Completion

_FUNCTIONS = ToolShape(key="function")


class ChatCompletions:
    url = "/v1/chat/completions"
    task = Task.GENERATE
    parameters: Mapping[str, Parameter] = {
        **COMMON,
        **SAMPLING,
        **CHOICES,
        **CACHE_OPTIONS,
        "messages": honoured("every role; parts that are text"),
        "max_tokens": honoured("without it, an answer may fill the context"),
        "max_completion_tokens": honoured("the newer word for `max_tokens`"),
        "logprobs": honoured(),
        "top_logprobs": honoured(f"0 to {MAX_TOP_LOGPROBS}, with `logprobs`"),
        "tools": honoured(
            "functions, for models whose template knows tools, refused by name otherwise;"
            " a call of a `strict` one is kept to its schema"
        ),
        "tool_choice": honoured("`none`, `auto`, `required`, a function, `allowed_tools`"),
        "parallel_tool_calls": honoured("`false` allows one call"),
        "reasoning_effort": honoured(
            "for templates that read it; `none` also for those with a switch, and where nothing"
            " is reasoned; refused by name otherwise"
        ),
        "response_format": RESPONSE_FORMAT,
        "functions": refused([], note="the older word for `tools`"),
        "function_call": refused("none", "auto", note="the older word for `tool_choice`"),
        "modalities": refused(["text"]),
        "audio": refused(),
        "verbosity": refused("medium"),
        "web_search_options": refused(),
        "prediction": no_effect("a hint for speed"),
        "chat_template_kwargs": honoured("names that the model's template reads"),
        "add_generation_prompt": honoured("`true` by default"),
        "continue_final_message": honoured("leaves the last message open"),
        "chat_template": refused(note="the model's own is used"),
        "documents": refused(),
        "echo": refused(False),
        "include_reasoning": refused(True),
        "thinking_token_budget": refused(),
        "mm_processor_kwargs": refused(),
        "media_io_kwargs": refused(),
        "add_special_tokens": refused(False, note="templates write their own"),
    }

    def check(self, body: Body) -> LineProblem | None:
        return check_body(body, "Chat Completions", prompt="messages")

    def opening(self, body: Body) -> str:
        return opening_of(body.get("messages"), tools=body.get("tools"))

    def draft(self, body: Body, line: LineContext, model: ModelContext) -> Draft:
        asked = read_honoured(body, self.parameters, ignore_unknown=model.ignore_unknown)
        refuse_prewarm(asked)
        chat = ChatBody(
            asked=asked,
            messages=read_messages(asked, ignore_unknown=model.ignore_unknown),
            settings=_settings(asked, model),
            logprobs=_read_logprobs(asked),
            param="messages",
            max_tokens_name=_max_tokens_name(asked),
        )
        return chat.draft(line, model)

    def respond(
        self, body: Body, line: LineContext, model: ModelContext, completions: list[Completion]
    ) -> Body:
        settings = _settings(body, model)
        check_answered(completions, settings.grammar_fault)
        (completion,) = completions
        turns = [read_turn(choice, settings, model.tokenizer) for choice in completion.choices]
        return {
            "id": f"chatcmpl-{line.id}",
            "object": "chat.completion",
            "created": line.created,
            "model": model.name,
            "choices": [
                {
                    "index": choice.index,
                    "message": _message(turn, choice, settings, line),
                    "logprobs": _logprobs(choice, model),
                    "finish_reason": turn.finish_reason(choice),
                }
                for choice, turn in zip(completion.choices, turns, strict=True)
            ],
            "usage": usage(
                completions, reasoning_tokens=sum(turn.reasoning_tokens for turn in turns)
            ),
            "service_tier": "default",
            "system_fingerprint": model.fingerprint,
            **prompt_logprobs(body, completion, model.tokenizer),
        }


def _settings(body: Body, model: ModelContext) -> ChatSettings:
    template = template_of(model.tokenizer)
    continues = read_boolean(body, "continue_final_message")
    opens = body.get("add_generation_prompt")
    if continues and opens:
        raise _not_both("add_generation_prompt", "continue_final_message")
    return ChatSettings(
        template=template,
        tools=read_tools(body, _FUNCTIONS, template, ignore_unknown=model.ignore_unknown),
        shape=read_shape(body, ignore_unknown=model.ignore_unknown),
        variables=read_variables(
            body,
            template,
            effort=read_effort(body, "reasoning_effort"),
            effort_name="reasoning_effort",
        ),
        add_generation_prompt=(
            not continues if opens is None else read_boolean(body, "add_generation_prompt")
        ),
        continue_final_message=continues,
    )


def _max_tokens_name(body: Body) -> str:
    """Which of its two names the body uses for the answer's limit."""
    if body.get("max_completion_tokens") is None:
        return "max_tokens"
    if body.get("max_tokens") is None:
        return "max_completion_tokens"
    raise _not_both("max_tokens", "max_completion_tokens")


def _not_both(one: str, other: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"Setting '{one}' and '{other}' at the same time is not supported.",
        param=one,
        code="invalid_parameter_combination",
    )


def _read_logprobs(body: Body) -> int | None:
    """How many alternatives to return per token, None for no log-probabilities at all."""
    wanted = read_boolean(body, "logprobs")
    alternatives = read_integer(body, "top_logprobs", 0, MAX_TOP_LOGPROBS)
    if wanted:
        return alternatives or 0
    if alternatives:
        raise invalid_value("top_logprobs", "it needs 'logprobs' to be true.")
    return None


def _message(
    turn: Turn, choice: Choice, settings: ChatSettings, line: LineContext
) -> dict[str, Any]:
    syntax = settings.template.syntax
    message: dict[str, Any] = {
        "role": "assistant",
        "content": turn.text or (None if turn.calls else ""),
        "refusal": None,
    }
    if settings.template.thinks:
        message["reasoning_content"] = turn.reasoning
    if turn.calls:
        message["tool_calls"] = [
            {
                "id": call_id(line, choice.index, number, syntax),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for number, call in enumerate(turn.calls)
        ]
    return message


def _logprobs(choice: Choice, model: ModelContext) -> dict[str, Any] | None:
    if choice.logprobs is None:
        return None
    return {"content": token_logprobs(choice, model.tokenizer), "refusal": None}
