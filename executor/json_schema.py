"""A JSON schema as the grammar library is to see it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from executor.grammar import GrammarError

KNOWN_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid"}
)
"""Values of `format` that are kept to."""

_ONE = (
    *("additionalProperties", "additionalItems", "items", "contains", "propertyNames"),
    *("not", "if", "then", "else", "unevaluatedItems", "unevaluatedProperties"),
)
_MANY = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_MIXING = frozenset({"allOf", "oneOf", "unevaluatedProperties", "dependentSchemas"})
_OF_OBJECTS = frozenset({"properties", "patternProperties", "required", "minProperties"})
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


def read_schema(text: str, *, lenient: bool = False) -> Any:
    """The schema of a JSON text, without what says nothing of the answer: unknown formats, which
    the specification calls annotations, and the library's own options. Objects that do not speak
    of further properties get none, as models given the freedom tend to go on and on.

    Raises:
        GrammarError: it is no schema, or a rule of it cannot be kept.
    """
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise GrammarError(f"it is not JSON: {error}") from error
    if not isinstance(schema, dict | bool):
        raise GrammarError("a schema is an object or a boolean")
    try:
        plain = _changed(schema, lambda one: _plain(one, lenient=lenient))
        return plain if _mixes(plain) else _changed(plain, _closed)
    except RecursionError as error:
        raise GrammarError("it is nested too deeply") from error


def _plain(schema: dict[str, Any], *, lenient: bool) -> dict[str, Any]:
    if not lenient:
        _check_distinct(schema)
    kept = {name: value for name, value in schema.items() if name != "x-guidance"}
    if isinstance(kept.get("format"), str) and kept["format"] not in KNOWN_FORMATS:
        del kept["format"]
    return kept


def _check_distinct(schema: dict[str, Any]) -> None:
    """A grammar cannot count different keys where their names are free: a model may repeat one."""
    least, required = schema.get("minProperties", 0), schema.get("required", [])
    is_free = schema.get("additionalProperties") is not False or "patternProperties" in schema
    counts = isinstance(least, int) and isinstance(required, list)
    if counts and is_free and least > max(1, len(required)):
        raise GrammarError(
            f"'minProperties' of {least} cannot be kept where names of properties are free"
        )


def _mixes(schema: Any) -> bool:
    """Whether what is said of an object may stand in several places: one that is closed in one of
    them might be impossible in another, or be no longer told from the other cases of a `oneOf`."""
    found = []

    def look(one: dict[str, Any]) -> dict[str, Any]:
        is_joined = ("anyOf" in one or "$ref" in one) and one.keys() & _OF_OBJECTS
        found.append(bool(is_joined or one.keys() & _MIXING))
        return dict(one)

    _changed(schema, look)
    return any(found)


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    names, required = schema.get("properties"), schema.get("required", [])
    if not names or not isinstance(names, dict) or not isinstance(required, list):
        return schema
    says = {"additionalProperties", "patternProperties", "minProperties"} & schema.keys()
    if says or not set(map(str, required)) <= names.keys():
        return schema
    return schema | {"additionalProperties": False}


def _changed(schema: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """The schema with every schema in it changed, and what is data left alone."""
    if not isinstance(schema, dict):
        return schema
    changed = change(schema)
    for name in _ONE:
        if isinstance(changed.get(name), dict):
            changed[name] = _changed(changed[name], change)
    for name in _MANY:
        if isinstance(changed.get(name), list):
            changed[name] = [_changed(one, change) for one in changed[name]]
    for name in _NAMED:
        if isinstance(changed.get(name), dict):
            changed[name] = {key: _changed(one, change) for key, one in changed[name].items()}
    return changed
