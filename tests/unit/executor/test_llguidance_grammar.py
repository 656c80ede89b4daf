from __future__ import annotations

import json
from typing import Any

import pytest

from executor.fake import ByteTokenizer
from executor.grammar import GrammarError
from executor.llguidance_grammar import LLGuidance
from executor.request import Grammar, GrammarKind
from tests.support.tokenizer_families import byte_fallback, byte_level, unigram

LIBRARY = LLGuidance(ByteTokenizer())


def schema(value: object, **options: Any) -> Grammar:
    return Grammar(kind=GrammarKind.JSON_SCHEMA, text=json.dumps(value), **options)


def lark(text: str, *parts: tuple[str, Grammar]) -> Grammar:
    return Grammar(kind=GrammarKind.LARK, text=text, parts=parts)


def regex(text: str) -> Grammar:
    return Grammar(kind=GrammarKind.REGEX, text=text)


def accepts(grammar: Grammar, text: str) -> bool:
    """Whether the text is an answer, whole."""
    matcher = LIBRARY.compile(grammar).matcher()
    return all(matcher.accept(byte) for byte in text.encode()) and matcher.inner.is_accepting()


def refusal(grammar: Grammar) -> GrammarError:
    with pytest.raises(GrammarError) as refused:
        LIBRARY.compile(grammar)
    return refused.value


@pytest.mark.parametrize("text", ['{"a": 1, "b": [true, null]}', '{"a": -3, "b": []}'])
def test_json_is_written_on_one_line_with_single_spaces(text: str) -> None:
    value = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "array"}}}
    grammar = schema(value | {"required": ["a", "b"]})
    assert accepts(grammar, text)
    assert not accepts(grammar, text.replace(" ", ""))
    assert not accepts(grammar, text.replace(" ", "\n"))


def test_other_whitespace_can_be_asked_for() -> None:
    grammar = schema({"type": "array", "items": {"const": 1}, "minItems": 2}, whitespace="[ ]{0,2}")
    assert accepts(grammar, "[1,1]")
    assert accepts(grammar, "[ 1,  1]")
    assert not accepts(grammar, "[1,   1]")


def test_a_schema_cannot_set_the_options_of_the_library() -> None:
    grammar = schema({"const": [1, 2], "x-guidance": {"whitespace_flexible": True}})
    assert not accepts(grammar, "[1,\n2]")
    assert "not" in str(refusal(schema({"not": {}, "x-guidance": {"lenient": True}})))


@pytest.mark.parametrize(
    ("pattern", "whole", "other"),
    [
        ("[a-c]+", "abc", "abcd"),
        ("^[a-c]+$", "abc", "abcd"),
        (r"\d{2}/\w", "12/x", "１２/x"),
        (r"a\$", "a$", "a"),
        (r"a\\$", "a\\", "a"),
        ("ä|ö", "ö", "o"),
    ],
)
def test_a_regular_expression_is_of_the_whole_answer(pattern: str, whole: str, other: str) -> None:
    assert accepts(regex(pattern), whole)
    assert not accepts(regex(pattern), other)


def test_choices_may_hold_any_text() -> None:
    texts = ["plain", 'quo"te', "back\\slash", "two\nlines", "日本", "🙂", "<think>"]
    grammar = Grammar(kind=GrammarKind.CHOICE, text=json.dumps(texts))
    assert all(accepts(grammar, text) for text in texts)
    assert not accepts(grammar, "plainly")


def test_a_grammar_is_lark_or_gbnf() -> None:
    assert accepts(lark('start: "a" B+\nB: /[0-9]/'), "a12")
    assert accepts(lark('root ::= "a" digit+\ndigit ::= [0-9]'), "a12")


def test_parts_are_called_by_their_names() -> None:
    inner = lark('start: "<" @value ">"', ("value", schema({"enum": [1, 2]})))
    outer = lark('start: @word " " @inner', ("word", regex("[a-z]+")), ("inner", inner))
    assert accepts(outer, "abc <2>")
    assert not accepts(outer, "abc <3>")


@pytest.mark.parametrize(
    ("grammar", "reason"),
    [
        (schema({"type": "array", "uniqueItems": True}), 'Unimplemented keys: ["uniqueItems"]'),
        (schema({"type": "strange"}), "Invalid type: strange"),
        (schema({"$ref": "#/$defs/none"}), "Pointer '/$defs/none' does not exist"),
        (
            schema({"type": "string", "pattern": "(?=a)b"}),
            "invalid regex: look-around, including look-ahead and look-behind, is not supported",
        ),
        (schema({"type": "integer", "minimum": 2, "maximum": 1}), "Unsatisfiable schema"),
        (schema({"type": "object", "minProperties": 2}), "names of properties are free"),
        (schema(False), "no answer satisfies"),
        (schema([1]), "an object or a boolean"),
        (Grammar(kind=GrammarKind.JSON_SCHEMA, text="{"), "it is not JSON"),
        (Grammar(kind=GrammarKind.JSON_SCHEMA, text="[" * 10**5), "it is not JSON"),
        (regex("a{3"), "unclosed counted repetition"),
        (lark('start: "a" b'), 'unknown name: "b"'),
        (lark("root ::= ("), "line"),
    ],
)
def test_what_cannot_be_used_is_told_in_one_line(grammar: Grammar, reason: str) -> None:
    message = str(refusal(grammar))
    assert reason in message
    assert "\n" not in message
    assert not message.endswith(".")


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("not", {}),
        ("if", {}),
        ("contains", {}),
        ("uniqueItems", True),
        ("propertyNames", {"maxLength": 3}),
        ("dependentRequired", {"a": ["b"]}),
        ("dependentSchemas", {"a": {}}),
        ("unevaluatedProperties", False),
    ],
)
def test_a_rule_that_no_grammar_keeps_is_refused_by_name(word: str, value: object) -> None:
    assert word in str(refusal(schema({word: value})))
    assert LIBRARY.compile(schema({word: value}, lenient=True))


def test_the_part_to_blame_is_named() -> None:
    good, bad = schema({"const": 1}), schema({"not": {}})
    assert refusal(lark("start: @a @b", ("a", good), ("b", bad))).part == "b"
    assert refusal(lark("start: @outer", ("outer", lark("start: @b", ("b", bad))))).part == "b"
    assert refusal(lark("start: @a", ("a", schema([])))).part == "a"
    assert refusal(lark("start: @a c", ("a", good))).part == ""


def test_what_a_lenient_schema_does_not_know_is_left_out() -> None:
    value = {"type": "array", "items": {"const": 1}, "uniqueItems": True}
    assert accepts(schema(value, lenient=True), "[1, 1]")


@pytest.mark.parametrize("family", [byte_level, byte_fallback, unigram])
def test_every_family_of_tokenizers_is_constrained(family: Any) -> None:
    tokenizer = family()
    library = LLGuidance(tokenizer)
    grammar = Grammar(kind=GrammarKind.CHOICE, text='["no", "yes, no"]')
    matcher = library.compile(grammar).matcher()
    tokens = []
    for byte in "yes,":
        token = next(
            t for t in range(tokenizer.vocab_size) if tokenizer.token_bytes(t) == byte.encode()
        )
        if not tokens:
            assert matcher.accept(token)
        tokens.append(token)
    forced = matcher.forced()
    assert b"".join(tokenizer.token_bytes(token) for token in forced) == b"es, no"
    assert all(matcher.accept(token) for token in forced)
    assert matcher.is_stopped


def test_text_that_no_token_spells_is_never_sampled() -> None:
    tokenizer = unigram()
    library = LLGuidance(tokenizer)
    grammar = Grammar(kind=GrammarKind.CHOICE, text='["né", "no"]')
    matcher = library.compile(grammar).matcher()
    forced = b"".join(tokenizer.token_bytes(token) for token in matcher.forced())
    assert b"no".startswith(forced)


def test_a_tokenizer_without_an_end_is_refused() -> None:
    class Endless(ByteTokenizer):
        eos_token_ids = frozenset()

    with pytest.raises(GrammarError, match="names no token that ends an answer"):
        LLGuidance(Endless()).compile(regex("a"))
