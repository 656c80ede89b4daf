from __future__ import annotations

import json

import pytest

from executor.grammar import GrammarError
from executor.json_schema import read_schema


def test_a_format_that_nobody_checks_is_an_annotation() -> None:
    schema = {
        "type": "object",
        "properties": {
            "format": {"type": "string", "format": "directory-path"},
            "when": {"type": "string", "format": "date"},
            "many": {"type": "array", "items": {"type": "string", "format": "path"}},
        },
        "$defs": {"a": {"anyOf": [{"format": "binary"}, {"format": "uuid"}]}},
    }
    read = read_schema(json.dumps(schema))
    assert read["properties"]["format"] == {"type": "string"}
    assert read["properties"]["when"]["format"] == "date"
    assert read["properties"]["many"]["items"] == {"type": "string"}
    assert read["$defs"]["a"] == {"anyOf": [{}, {"format": "uuid"}]}


def test_data_within_a_schema_is_left_alone() -> None:
    schema = {"enum": [{"format": "path", "x-guidance": 1}], "default": {"format": "path"}}
    assert read_schema(json.dumps(schema)) == schema
    assert read_schema(json.dumps({"const": {"format": "path"}})) == {"const": {"format": "path"}}


A = {"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {}}}}}


def test_objects_that_do_not_speak_of_further_properties_get_none() -> None:
    read = read_schema(json.dumps(A))
    assert read["additionalProperties"] is False
    assert read["properties"]["a"]["additionalProperties"] is False
    choices = read_schema(json.dumps({"anyOf": [A, {"type": "null"}]}))
    assert choices["anyOf"][0] == read


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": {}},
        {"properties": {"a": {}}, "additionalProperties": True},
        {"properties": {"a": {}}, "additionalProperties": {"type": "integer"}},
        {"properties": {"a": {}}, "patternProperties": {"^b": {}}},
        {"properties": {"a": {}}, "required": ["b"]},
        {"properties": {"a": {}}, "minProperties": 1},
        {"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]},
        {"oneOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]},
        {"properties": {"a": {}}, "anyOf": [{"properties": {"b": {}}}, {"required": ["a"]}]},
        {"$ref": "#/$defs/x", "required": ["b"], "$defs": {"x": {"properties": {"a": {}}}}},
    ],
)
def test_objects_that_may_have_further_properties_keep_them(schema: dict[str, object]) -> None:
    assert read_schema(json.dumps(schema)) == schema


@pytest.mark.parametrize(
    ("schema", "is_kept"),
    [
        ({"minProperties": 1}, True),
        ({"minProperties": 2}, False),
        ({"minProperties": 2, "required": ["a", "b"]}, True),
        ({"minProperties": 3, "required": ["a", "b"]}, False),
        ({"minProperties": 2, "additionalProperties": False}, True),
        ({"minProperties": 2, "properties": {"a": True}}, False),
        ({"minProperties": 2, "additionalProperties": False, "patternProperties": {}}, False),
    ],
)
def test_properties_are_counted_only_where_they_cannot_repeat(
    schema: dict[str, object], is_kept: bool
) -> None:
    text = json.dumps({"type": "object", "properties": {"x": schema}})
    if is_kept:
        assert read_schema(text)["properties"]["x"] == schema
        return
    with pytest.raises(GrammarError, match="names of properties are free"):
        read_schema(text)
    assert read_schema(text, lenient=True)["properties"]["x"] == schema
