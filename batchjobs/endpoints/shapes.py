"""What a request says of the shape of its answer: the public API's words for it, and vLLM's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from batchjobs.endpoints.base import Body
from batchjobs.endpoints.fields import (
    check_keys,
    empty_array,
    invalid_value,
    missing,
    not_among,
    read_string,
    require_string,
    unsupported,
    wrong_type,
)
from batchjobs.endpoints.support import Parameter, honoured, no_effect, refused
from batchjobs.errors import InvalidRequestError
from executor.request import Grammar, GrammarKind

SHAPES: dict[str, Parameter] = {
    "guided_json": honoured("a JSON schema, or one as a string; [how](structured_output.md)"),
    "guided_regex": honoured("the whole answer matches"),
    "guided_choice": honoured("the answer is one of these strings"),
    "guided_grammar": honoured("Lark, or llama.cpp's GBNF"),
    "guided_whitespace_pattern": honoured("between the tokens of JSON; by default there is little"),
    "guided_decoding_backend": no_effect("there is one"),
    "structured_outputs": honoured(
        "one of `json`, `regex`, `choice`, `grammar`, `json_object`, and `whitespace_pattern`;"
        " `structural_tag` and `disable_additional_properties` are refused by name"
    ),
    "structural_tag": refused(),
}
"""vLLM's own words for the shape of an answer."""

RESPONSE_FORMAT = honoured(
    "`text`, `json_object`, `json_schema`; [what of a schema is kept to](structured_output.md)"
)

_FORMATS = ("text", "json_object", "json_schema")
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_MAX_NAME = 64
_ANY_OBJECT = '{"type": "object"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The grammar of an answer; `param` is the body's word for it, `schema_name` what the body
    calls its schema."""

    grammar: Grammar
    param: str
    schema_name: str | None = None

    def fault(self, reason: str) -> InvalidRequestError:
        """The public API's error for a grammar that cannot be used."""
        if self.schema_name is None:
            return invalid_value(self.param, f"{reason}.")
        message = f"Invalid schema for response_format '{self.schema_name}': {reason}."
        if self.param == "response_format":
            return InvalidRequestError(message, param=self.param)
        return InvalidRequestError(message, param=self.param, code="invalid_json_schema")


def read_shape(body: Body, *, ignore_unknown: bool) -> Shape | None:
    """`response_format`, or one of vLLM's words for the same.

    Raises:
        InvalidRequestError: it is malformed, or there are several.
    """
    given = [name for name in _READERS if body.get(name) is not None]
    shapes = [_READERS[name](body, ignore_unknown) for name in given]
    asked = [shape for shape in shapes if shape is not None]
    if len(asked) > 1:
        raise several_shapes(asked[0].param, asked[1].param)
    return _with_whitespace(body, asked[0] if asked else None)


def several_shapes(one: str, other: str) -> InvalidRequestError:
    message = f"'{one}' and '{other}' cannot be combined: an answer has one shape."
    return InvalidRequestError(message, param=other, code="invalid_parameter_combination")


def read_format(where: str, form: object, *, ignore_unknown: bool) -> Shape | None:
    """`text.format` of a response: as `response_format`, with the schema's fields beside `type`."""
    kind, form = _read_kind(where, form)
    if kind != "json_schema":
        check_keys(where, form, {"type"}, ignore_unknown=ignore_unknown)
        return _plain_shape(kind, where)
    return _read_schema(where, form, extras={"type"}, ignore_unknown=ignore_unknown)


def _response_format(body: Body, ignore_unknown: bool) -> Shape | None:
    where = "response_format"
    kind, form = _read_kind(where, body[where])
    if kind != "json_schema":
        check_keys(where, form, {"type"}, ignore_unknown=ignore_unknown)
        return _plain_shape(kind, where)
    check_keys(where, form, {"type", "json_schema"}, ignore_unknown=ignore_unknown)
    schema = form.get("json_schema")
    where = f"{where}.json_schema"
    if schema is None:
        raise missing(where)
    if not isinstance(schema, dict):
        raise wrong_type(where, "an object", schema)
    return _read_schema(where, schema, extras=set(), ignore_unknown=ignore_unknown)


def _read_kind(where: str, form: object) -> tuple[str, dict[str, Any]]:
    if not isinstance(form, dict):
        raise wrong_type(where, "an object", form)
    kind = require_string(form, "type", where)
    if kind not in _FORMATS:
        raise not_among(f"{where}.type", kind, _FORMATS)
    return kind, form


def _plain_shape(kind: str, where: str) -> Shape | None:
    if kind == "text":
        return None
    return Shape(grammar=_schema_grammar(_ANY_OBJECT), param=where)


def _read_schema(
    where: str, form: dict[str, Any], *, extras: set[str], ignore_unknown: bool
) -> Shape:
    known = extras | {"name", "description", "schema", "strict"}
    check_keys(where, form, known, ignore_unknown=ignore_unknown)
    name = require_string(form, "name", where)
    _check_name(f"{where}.name", name)
    read_string(form, "description", where)
    if form.get("strict") is not None and not isinstance(form["strict"], bool):
        raise wrong_type(f"{where}.strict", "a boolean", form["strict"])
    schema = form.get("schema")
    if schema is None:
        raise missing(f"{where}.schema")
    if not isinstance(schema, dict):
        raise wrong_type(f"{where}.schema", "an object", schema)
    param = "response_format" if where.startswith("response_format") else f"{where}.schema"
    return Shape(grammar=_schema_grammar(json.dumps(schema)), param=param, schema_name=name)


def _check_name(where: str, name: str) -> None:
    if len(name) > _MAX_NAME:
        message = (
            f"Invalid '{where}': string too long. Expected a string with maximum length"
            f" {_MAX_NAME}, but got a string with length {len(name)} instead."
        )
        raise InvalidRequestError(message, param=where, code="string_above_max_length")
    if not _NAME.fullmatch(name):
        message = (
            f"Invalid '{where}': string does not match pattern. Expected a string that matches"
            " the pattern '^[a-zA-Z0-9_-]+$'."
        )
        raise InvalidRequestError(message, param=where, code="invalid_value")


def _guided_json(body: Body, _: bool) -> Shape:
    return _json("guided_json", body["guided_json"])


def _guided_regex(body: Body, _: bool) -> Shape:
    return _worded(GrammarKind.REGEX, "guided_regex", body["guided_regex"])


def _guided_choice(body: Body, _: bool) -> Shape:
    return _choice("guided_choice", body["guided_choice"])


def _guided_grammar(body: Body, _: bool) -> Shape:
    return _worded(GrammarKind.LARK, "guided_grammar", body["guided_grammar"])


_KINDS = ("json", "regex", "choice", "grammar", "json_object")
_HARMLESS = ("disable_fallback", "disable_any_whitespace")


def _structured_outputs(body: Body, ignore_unknown: bool) -> Shape | None:
    where = "structured_outputs"
    value = body[where]
    if not isinstance(value, dict):
        raise wrong_type(where, "an object", value)
    for name in ("structural_tag", "disable_additional_properties"):
        if value.get(name):
            raise unsupported(f"{where}.{name}")
    known = {*_KINDS, *_HARMLESS, "whitespace_pattern", "structural_tag"}
    check_keys(
        where, value, known | {"disable_additional_properties"}, ignore_unknown=ignore_unknown
    )
    kinds = [name for name in _KINDS if value.get(name) not in (None, False)]
    if len(kinds) != 1:
        listed = ", ".join(f"'{name}'" for name in _KINDS)
        raise invalid_value(where, f"it needs exactly one of {listed}.")
    [kind] = kinds
    return _structured(kind, f"{where}.{kind}", value)


def _structured(kind: str, where: str, value: dict[str, Any]) -> Shape:
    whitespace = read_string(value, "whitespace_pattern", "structured_outputs")
    match kind:
        case "json":
            return _json(where, value[kind], whitespace)
        case "json_object":
            if value[kind] is not True:
                raise wrong_type(where, "a boolean", value[kind])
            return Shape(grammar=_schema_grammar(_ANY_OBJECT, whitespace), param=where)
        case "choice":
            return _choice(where, value[kind])
        case _:
            of = GrammarKind.REGEX if kind == "regex" else GrammarKind.LARK
            return _worded(of, where, value[kind])


_READERS: dict[str, Callable[[Body, bool], Shape | None]] = {
    "response_format": _response_format,
    "structured_outputs": _structured_outputs,
    "guided_json": _guided_json,
    "guided_regex": _guided_regex,
    "guided_choice": _guided_choice,
    "guided_grammar": _guided_grammar,
}


def _with_whitespace(body: Body, shape: Shape | None) -> Shape | None:
    pattern = read_string(body, "guided_whitespace_pattern")
    if pattern is None:
        return shape
    if shape is None or shape.grammar.kind is not GrammarKind.JSON_SCHEMA:
        raise invalid_value("guided_whitespace_pattern", "it needs an answer that is JSON.")
    return replace(shape, grammar=replace(shape.grammar, whitespace=pattern))


def _json(where: str, schema: object, whitespace: str | None = None) -> Shape:
    if isinstance(schema, dict | bool):
        schema = json.dumps(schema)
    if not isinstance(schema, str):
        raise wrong_type(where, "an object or a string", schema)
    return Shape(grammar=_schema_grammar(schema, whitespace), param=where)


def _worded(kind: GrammarKind, where: str, text: object) -> Shape:
    if not isinstance(text, str):
        raise wrong_type(where, "a string", text)
    return Shape(grammar=Grammar(kind=kind, text=text), param=where)


def _choice(where: str, choices: object) -> Shape:
    if not isinstance(choices, list):
        raise wrong_type(where, "an array of strings", choices)
    if not choices:
        raise empty_array(where)
    for index, choice in enumerate(choices):
        if not isinstance(choice, str):
            raise wrong_type(f"{where}[{index}]", "a string", choice)
    return _worded(GrammarKind.CHOICE, where, json.dumps(choices))


def _schema_grammar(text: str, whitespace: str | None = None) -> Grammar:
    return Grammar(kind=GrammarKind.JSON_SCHEMA, text=text, whitespace=whitespace)
