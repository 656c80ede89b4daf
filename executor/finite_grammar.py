"""Choices without a library: what `grammar` asks for, at its plainest, for tests."""

from __future__ import annotations

import json
from collections.abc import Sequence as Many
from dataclasses import dataclass

import numpy as np

from executor.grammar import GrammarError, Mask, Matcher
from executor.request import Grammar, GrammarKind


class FiniteGrammars:
    """Knows choices and nothing else; `tokens` are the vocabulary's bytes, by token id."""

    def __init__(self, tokens: Many[bytes], eos_token_ids: Many[int]) -> None:
        self._tokens = tuple(tokens)
        self._eos = frozenset(eos_token_ids)

    @property
    def vocab_size(self) -> int:
        return len(self._tokens)

    def compile(self, grammar: Grammar) -> FiniteGrammar:
        if grammar.kind is not GrammarKind.CHOICE:
            raise GrammarError(f"{grammar.kind} is not a choice")
        choices = frozenset(choice.encode() for choice in json.loads(grammar.text))
        if not choices:
            raise GrammarError("there is nothing to choose from")
        return FiniteGrammar(choices, self._tokens, self._eos)

    def fill(self, matchers: Many[Matcher], mask: Mask) -> None:
        for row, matcher in enumerate(matchers):
            assert isinstance(matcher, FiniteMatcher)
            bits = np.zeros(mask.shape[1] * 32, dtype=np.uint8)
            bits[matcher.allowed()] = 1
            mask[row] = np.packbits(bits, bitorder="little").view(np.int32)


@dataclass(frozen=True, slots=True)
class FiniteGrammar:
    """Some texts, one of which an answer is."""

    choices: frozenset[bytes]
    tokens: tuple[bytes, ...]
    eos: frozenset[int]

    def matcher(self) -> FiniteMatcher:
        return FiniteMatcher(self)


class FiniteMatcher:
    """Keeps what is still to come of each choice that the answer may be."""

    error: str | None = None

    def __init__(self, grammar: FiniteGrammar) -> None:
        self._grammar = grammar
        self._rests = grammar.choices
        self._has_ended = False

    @property
    def is_stopped(self) -> bool:
        return self._has_ended or self._rests == {b""}

    def accept(self, token: int) -> bool:
        if token not in self.allowed():
            self.error = f"token {token} is not allowed"
            return False
        self._has_ended = token in self._grammar.eos
        if not self._has_ended:
            self._rests = self._after(self._rests, token)
        return True

    def allowed(self) -> list[int]:
        """Ids of the tokens that may come next."""
        ends = self._grammar.eos if self._has_ended or b"" in self._rests else frozenset()
        if self._has_ended:
            return sorted(ends)
        going_on = {
            token
            for token, data in enumerate(self._grammar.tokens)
            if data and token not in self._grammar.eos and self._after(self._rests, token)
        }
        return sorted(going_on | ends)

    def forced(self) -> list[int]:
        forced: list[int] = []
        ahead = FiniteMatcher(self._grammar)
        ahead._rests, ahead._has_ended = self._rests, self._has_ended
        while not ahead.is_stopped:
            allowed = ahead.allowed()
            if len(allowed) != 1 or not ahead.accept(allowed[0]):
                break
            forced += allowed
        return forced

    def _after(self, rests: frozenset[bytes], token: int) -> frozenset[bytes]:
        data = self._grammar.tokens[token]
        return frozenset(rest[len(data) :] for rest in rests if rest.startswith(data))
