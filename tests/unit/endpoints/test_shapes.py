from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from batchjobs.endpoints import ENDPOINTS
from batchjobs.endpoints.drafts import prepare_alone
from batchjobs.endpoints.shapes import Shape, read_format, read_shape
from batchjobs.errors import InvalidRequestError
from executor.request import Grammar, GrammarKind
from tests.support.endpoint import LINE, MODEL

ROOT = Path(__file__).parents[3]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def read(**body: Any) -> Shape | None:
    return read_shape(body, ignore_unknown=False)


def refusal(**body: Any) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as refused:
        read(**body)
    return refused.value


def grammar(**body: Any) -> Grammar:
    shape = read(**body)
    assert shape is not None
    return shape.grammar


def form(**schema: Any) -> dict[str, Any]:
    named = {"name": "event", "schema": SCHEMA, **schema}
    return {"type": "json_schema", "json_schema": named}


def json_grammar(schema: object, whitespace: str | None = None) -> Grammar:
    return Grammar(kind=GrammarKind.JSON_SCHEMA, text=json.dumps(schema), whitespace=whitespace)


@pytest.mark.parametrize(
    "body",
    [{}, {"response_format": None}, {"response_format": {"type": "text"}}, {"guided_json": None}],
)
def test_text_has_no_shape(body: dict[str, Any]) -> None:
    assert read(**body) is None


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"response_format": {"type": "json_object"}}, json_grammar({"type": "object"})),
        ({"response_format": form()}, json_grammar(SCHEMA)),
        ({"response_format": form(strict=True, description="An event.")}, json_grammar(SCHEMA)),
        ({"guided_json": SCHEMA}, json_grammar(SCHEMA)),
        ({"guided_json": json.dumps(SCHEMA)}, json_grammar(SCHEMA)),
        ({"guided_regex": "a+"}, Grammar(kind=GrammarKind.REGEX, text="a+")),
        ({"guided_choice": ["a", "b"]}, Grammar(kind=GrammarKind.CHOICE, text='["a", "b"]')),
        ({"guided_grammar": "start: A"}, Grammar(kind=GrammarKind.LARK, text="start: A")),
        ({"structured_outputs": {"json": SCHEMA}}, json_grammar(SCHEMA)),
        (
            {"structured_outputs": {"json_object": True, "disable_any_whitespace": True}},
            json_grammar({"type": "object"}),
        ),
        ({"structured_outputs": {"regex": "a+"}}, Grammar(kind=GrammarKind.REGEX, text="a+")),
        ({"structured_outputs": {"choice": ["a"]}}, Grammar(kind=GrammarKind.CHOICE, text='["a"]')),
        ({"structured_outputs": {"grammar": "s"}}, Grammar(kind=GrammarKind.LARK, text="s")),
        (
            {"structured_outputs": {"json": SCHEMA, "whitespace_pattern": " ?"}},
            json_grammar(SCHEMA, " ?"),
        ),
        (
            {"response_format": form(), "guided_whitespace_pattern": " ?"},
            json_grammar(SCHEMA, " ?"),
        ),
        ({"response_format": {"type": "text"}, "guided_json": SCHEMA}, json_grammar(SCHEMA)),
    ],
)
def test_all_ways_to_ask_come_to_a_grammar(body: dict[str, Any], expected: Grammar) -> None:
    assert grammar(**body) == expected


def test_responses_write_the_schema_flat() -> None:
    flat = {"type": "json_schema", "name": "event", "schema": SCHEMA, "strict": True}
    shape = read_format("text.format", flat, ignore_unknown=False)
    assert shape is not None
    assert shape.grammar == json_grammar(SCHEMA)
    assert shape.fault("no").param == "text.format.schema"


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"response_format": "json"}, "invalid_type", "response_format"),
        ({"response_format": {}}, "missing_required_parameter", "response_format.type"),
        ({"response_format": {"type": "grammar"}}, "invalid_value", "response_format.type"),
        (
            {"response_format": {"type": "json_object", "schema": {}}},
            "unknown_parameter",
            "response_format.schema",
        ),
        (
            {"response_format": {"type": "json_schema"}},
            "missing_required_parameter",
            "response_format.json_schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": []}},
            "invalid_type",
            "response_format.json_schema",
        ),
        (
            {"response_format": form(name=None)},
            "missing_required_parameter",
            "response_format.json_schema.name",
        ),
        (
            {"response_format": form(name="my event")},
            "invalid_value",
            "response_format.json_schema.name",
        ),
        (
            {"response_format": form(name="x" * 65)},
            "string_above_max_length",
            "response_format.json_schema.name",
        ),
        (
            {"response_format": form(schema=None)},
            "missing_required_parameter",
            "response_format.json_schema.schema",
        ),
        (
            {"response_format": form(schema="{}")},
            "invalid_type",
            "response_format.json_schema.schema",
        ),
        (
            {"response_format": form(strict="yes")},
            "invalid_type",
            "response_format.json_schema.strict",
        ),
        (
            {"response_format": form(mood=1)},
            "unknown_parameter",
            "response_format.json_schema.mood",
        ),
        ({"guided_json": 1}, "invalid_type", "guided_json"),
        ({"guided_regex": 1}, "invalid_type", "guided_regex"),
        ({"guided_choice": "a"}, "invalid_type", "guided_choice"),
        ({"guided_choice": []}, "empty_array", "guided_choice"),
        ({"guided_choice": ["a", 1]}, "invalid_type", "guided_choice[1]"),
        ({"guided_grammar": []}, "invalid_type", "guided_grammar"),
        ({"structured_outputs": "x"}, "invalid_type", "structured_outputs"),
        ({"structured_outputs": {}}, "invalid_value", "structured_outputs"),
        (
            {"structured_outputs": {"regex": "a", "json_object": True}},
            "invalid_value",
            "structured_outputs",
        ),
        (
            {"structured_outputs": {"json_object": "yes"}},
            "invalid_type",
            "structured_outputs.json_object",
        ),
        (
            {"structured_outputs": {"structural_tag": "{}"}},
            "unsupported_parameter",
            "structured_outputs.structural_tag",
        ),
        (
            {"structured_outputs": {"json": {}, "disable_additional_properties": True}},
            "unsupported_parameter",
            "structured_outputs.disable_additional_properties",
        ),
        (
            {"structured_outputs": {"regex": "a", "mood": 1}},
            "unknown_parameter",
            "structured_outputs.mood",
        ),
        (
            {"guided_regex": "a", "guided_choice": ["a"]},
            "invalid_parameter_combination",
            "guided_choice",
        ),
        (
            {"response_format": {"type": "json_object"}, "guided_regex": "a"},
            "invalid_parameter_combination",
            "guided_regex",
        ),
        ({"guided_whitespace_pattern": " "}, "invalid_value", "guided_whitespace_pattern"),
        (
            {"guided_regex": "a", "guided_whitespace_pattern": " "},
            "invalid_value",
            "guided_whitespace_pattern",
        ),
    ],
)
def test_a_malformed_shape_is_located(body: dict[str, Any], code: str, param: str) -> None:
    error = refusal(**body)
    assert (error.code, error.param, error.status_code) == (code, param, 400)


def test_unknown_keys_are_left_out_where_they_are_ignored() -> None:
    body = {"response_format": form(mood=1)}
    assert read_shape(body, ignore_unknown=True) == read(response_format=form())


def shown() -> list[dict[str, Any]]:
    """The lines of the guide and of its example file."""
    guide = (ROOT / "docs" / "structured_output.md").read_text()
    written = re.findall(r"```json\n(.*?)```", guide, re.DOTALL)
    return [json.loads(text) for text in [*written, *_examples()]]


def _examples() -> list[str]:
    return (ROOT / "examples" / "structured_output.jsonl").read_text().splitlines()


@pytest.mark.parametrize("line", [pytest.param(line, id=line["custom_id"]) for line in shown()])
def test_what_the_guide_shows_is_taken(line: dict[str, Any]) -> None:
    model = replace(MODEL, max_model_len=1000)
    [request] = prepare_alone(ENDPOINTS[line["url"]], line["body"], LINE, model)
    assert request.sampling.grammar is not None
