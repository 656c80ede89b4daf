"""What a grammar library must do for the engine; its in-memory twin does the same."""

from __future__ import annotations

import json
from collections.abc import Sequence as Many

import pytest

from executor.fake import EOS, VOCABULARY, ByteTokenizer
from executor.finite_grammar import FiniteGrammars
from executor.grammar import GrammarError, GrammarLibrary, Matcher, allowed_tokens, new_mask
from executor.llguidance_grammar import LLGuidance
from executor.request import Grammar, GrammarKind

_TOKENIZER = ByteTokenizer()
# A special token stands for no text, so that no choice can be spelled with it.
_BYTES = [_TOKENIZER.token_bytes(token) if token < 256 else b"" for token in range(VOCABULARY)]
LIBRARIES: dict[str, GrammarLibrary] = {
    "finite": FiniteGrammars(_BYTES, [EOS]),
    "llguidance": LLGuidance(_TOKENIZER),
}


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> GrammarLibrary:
    return LIBRARIES[request.param]


def choice(*texts: str) -> Grammar:
    return Grammar(kind=GrammarKind.CHOICE, text=json.dumps(texts))


def allowed(library: GrammarLibrary, matchers: Many[Matcher]) -> list[list[int]]:
    mask = new_mask(len(matchers), library.vocab_size)
    library.fill(matchers, mask)
    return [row.nonzero()[0].tolist() for row in allowed_tokens(mask, library.vocab_size)]


def after(library: GrammarLibrary, grammar: Grammar, text: str) -> Matcher:
    matcher = library.compile(grammar).matcher()
    assert all(matcher.accept(byte) for byte in text.encode())
    return matcher


def test_only_what_leads_to_a_choice_is_allowed(library: GrammarLibrary) -> None:
    matcher = after(library, choice("tea", "teal", "toast", "Öl"), "t")
    assert allowed(library, [matcher]) == [[ord("e"), ord("o")]]


def test_the_end_is_allowed_where_a_choice_is_whole(library: GrammarLibrary) -> None:
    matcher = after(library, choice("tea", "teal"), "tea")
    assert allowed(library, [matcher]) == [[ord("l"), EOS]]
    assert not matcher.is_stopped


def test_an_answer_that_nothing_can_follow_has_stopped(library: GrammarLibrary) -> None:
    matcher = after(library, choice("tea", "teal"), "teal")
    assert matcher.is_stopped
    assert matcher.forced() == []


def test_the_end_of_sequence_stops_an_answer(library: GrammarLibrary) -> None:
    matcher = after(library, choice("tea", "teal"), "tea")
    assert matcher.accept(EOS)
    assert matcher.is_stopped


def test_forced_tokens_are_those_without_an_alternative(library: GrammarLibrary) -> None:
    matcher = after(library, choice("butter", "buttons"), "b")
    assert bytes(matcher.forced()) == b"utt"
    for token in b"utt":
        assert allowed(library, [matcher]) == [[token]]
        assert matcher.accept(token)
    assert matcher.forced() == []


def test_a_token_that_is_not_allowed_is_an_error(library: GrammarLibrary) -> None:
    matcher = library.compile(choice("tea")).matcher()
    assert matcher.error is None
    assert not matcher.accept(ord("x"))
    assert matcher.error


def test_matchers_of_a_grammar_go_their_own_ways(library: GrammarLibrary) -> None:
    grammar = library.compile(choice("ab", "cd"))
    one, other = grammar.matcher(), grammar.matcher()
    assert one.accept(ord("a"))
    assert allowed(library, [one, other]) == [[ord("b")], [ord("a"), ord("c")]]


def test_rows_of_different_grammars_are_filled_together(library: GrammarLibrary) -> None:
    matchers = [library.compile(choice(text)).matcher() for text in ("x", "y", "z")]
    assert allowed(library, matchers) == [[ord("x")], [ord("y")], [ord("z")]]


def test_a_grammar_that_allows_nothing_is_refused(library: GrammarLibrary) -> None:
    with pytest.raises(GrammarError, match="nothing to choose from"):
        library.compile(choice())
