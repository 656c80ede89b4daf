"""The grammar of an answer that calls functions, in the syntax of the model's family.

| the request | an answer is |
|---|---|
| demands a call (`required`, or one function's name) | calls |
| offers functions, and asks for a shape | calls, or of that shape |
| offers functions of which one is `strict`, or allows some only | text with calls |

Arguments are of the function's schema. What of a schema no grammar can keep is refused where the
function is `strict`, and left out where it is not.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from batchjobs.endpoints.base import Tokenizer
from batchjobs.endpoints.templates import END_OF_THINK, THINK, CallSyntax
from batchjobs.endpoints.tools import Function, ToolUse
from executor.request import Grammar, GrammarKind

ANSWER = "answer"
"""The part that is the answer's shape; functions are `function0`, `function1`, …"""

_REASONED = "reasoned"
_REST = "REST: /(?s:.*)/"


def answer_grammar(
    tools: ToolUse, syntax: CallSyntax, shape: Grammar | None, tokenizer: Tokenizer
) -> Grammar | None:
    """What an answer must be; None where it may be anything."""
    if not tools.functions:
        return shape
    if shape is None and not tools.is_constrained:
        return None
    calls = _SYNTAXES[syntax](tools, tokenizer)
    parts = [(part_of(i), _arguments(one)) for i, one in enumerate(tools.functions)]
    if tools.must_call:
        start = "start: calls"
    elif shape is None:
        start = f"{calls.beside_text}\n{_REST}"
    else:
        start = f"start: calls | @{ANSWER}"
        parts.append((ANSWER, shape))
    return Grammar(kind=GrammarKind.LARK, text=f"{start}\n{calls.rules}", parts=tuple(parts))


def after_reasoning(grammar: Grammar, tokenizer: Tokenizer, *, is_open: bool) -> Grammar:
    """The grammar behind what a model reasons: `is_open` where the prompt has begun with that,
    else the model may do without."""
    thought = up_to(END_OF_THINK, tokenizer, "thought")
    opening = marker(THINK, tokenizer)
    start = "thought GAP" if is_open else f"({opening} thought GAP)?"
    rules = [f"start: {start} @{_REASONED}", thought, r"GAP: /\n{0,2}/", _REST]
    return Grammar(kind=GrammarKind.LARK, text="\n".join(rules), parts=((_REASONED, grammar),))


def part_of(number: int) -> str:
    """The name of the part that is a function's arguments."""
    return f"function{number}"


def marker(name: str, tokenizer: Tokenizer) -> str:
    """A tag in the language of grammars: a special token of the model, or text."""
    token = tokenizer.special_token_id(name)
    return _quoted(name) if token is None else f"<[{token}]>"


def up_to(name: str, tokenizer: Tokenizer, rule: str) -> str:
    """A rule for any text up to the first tag of this name, and the tag; `REST` is any text."""
    token = tokenizer.special_token_id(name)
    if token is None:
        return f"{rule}[lazy]: REST {_quoted(name)}"
    return f"{rule}: REST <[{token}]>"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Calls:
    """`rules` define `calls`, one or several; `beside_text` is a `start` for text with calls."""

    rules: str
    beside_text: str


def _hermes(tools: ToolUse, tokenizer: Tokenizer) -> _Calls:
    opening, end = marker("<tool_call>", tokenizer), marker("</tool_call>", tokenizer)
    rules = [
        "calls: call" + _more(tools, '"\\n" call'),
        f"call: {opening} inside",
        f'inside: "\\n" object "\\n" {end}',
        _objects(tools, "arguments"),
    ]
    tagged = [
        "start: tagged* REST" if tools.parallel else "start: tagged | REST",
        "tagged: before inside",
        up_to("<tool_call>", tokenizer, "before"),
    ]
    return _Calls(rules="\n".join(rules), beside_text="\n".join(tagged))


def _mistral(tools: ToolUse, tokenizer: Tokenizer) -> _Calls:
    opening = marker("[TOOL_CALLS]", tokenizer)
    if "[ARGS]" in tokenizer.chat_template:
        args = marker("[ARGS]", tokenizer)
        named = [
            f"{_quoted(one.name)} {args} @{part_of(i)}" for i, one in enumerate(tools.functions)
        ]
        listed = f"listed: one{_more(tools, f'{opening} one')}"
        rules = [listed, f"one: {' | '.join(named)}"]
    else:
        more = _more(tools, '", " object')
        rules = [f'listed: "[" object{more} "]"', _objects(tools, "arguments")]
    return _Calls(
        rules="\n".join([f"calls: {opening} listed", *rules]),
        beside_text="start: before listed | REST\n" + up_to("[TOOL_CALLS]", tokenizer, "before"),
    )


def _llama(tools: ToolUse, _: Tokenizer) -> _Calls:
    more = _more(tools, '"; " object')
    return _Calls(
        rules=f"calls: object{more}\n{_objects(tools, 'parameters')}",
        beside_text=_text_or_calls(r"(?s:.*)<\|python_tag\|>(?s:.*)"),
    )


def _json(tools: ToolUse, _: Tokenizer) -> _Calls:
    several = ' | "[" object (", " object)+ "]"' if tools.parallel else ""
    return _Calls(
        rules=f"calls: object{several}\n{_objects(tools, 'arguments')}",
        beside_text=_text_or_calls(r"\s*```(?s:.*)```\s*"),
    )


def _text_or_calls(other: str) -> str:
    """Where nothing marks a call, an answer that begins as one is one; so would be text as `other`,
    which is left to models that call as they like."""
    return f"start: calls | TEXT |\nTEXT: /\\s*[^\\s{{\\[](?s:.*)/ & ~/{other}/"


_SYNTAXES = {
    CallSyntax.HERMES: _hermes,
    CallSyntax.LLAMA: _llama,
    CallSyntax.MISTRAL: _mistral,
    CallSyntax.JSON: _json,
}


def _objects(tools: ToolUse, key: str) -> str:
    """A rule for one object that names a function and has its arguments under `key`.

    Its pieces are those of JSON: a longer one would hide that an answer may be another object.
    """
    named = [
        f"{_quoted(_quoted(function.name))} pair @{part_of(number)}"
        for number, function in enumerate(tools.functions)
    ]
    pair = f'pair: ", " {_quoted(json.dumps(key))} ": "'
    return f'object: "{{" "\\"name\\"" ": " named "}}"\nnamed: {" | ".join(named)}\n{pair}'


def _more(tools: ToolUse, repeated: str) -> str:
    return f" ({repeated})*" if tools.parallel else ""


def _arguments(function: Function) -> Grammar:
    return Grammar(
        kind=GrammarKind.JSON_SCHEMA,
        text=json.dumps(function.parameters),
        lenient=not function.strict,
    )


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
