"""What the engine asks of a grammar library (`llguidance_grammar` is one)."""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from executor.errors import EngineError
from executor.request import Grammar

Mask = NDArray[np.int32]
"""Allowed tokens [R, W], a bit each: token t of a row is bit t % 32 of word t // 32."""


class GrammarError(EngineError):
    """The grammar cannot be used; the message is the library's reason, without a full stop.

    `part` is the part to blame, empty for the grammar as a whole.
    """

    def __init__(self, reason: str, *, part: str = "") -> None:
        super().__init__(reason)
        self.part = part


class Matcher(Protocol):
    """How far one answer has come in its grammar."""

    @property
    def is_stopped(self) -> bool:
        """Whether the answer is complete and nothing can follow."""

    @property
    def error(self) -> str | None:
        """Why the library has given up on the answer, in words; None while all is well."""

    def accept(self, token: int) -> bool:
        """The answer goes on with `token`; False if the grammar does not allow that."""

    def forced(self) -> list[int]:
        """The tokens, perhaps none, that come next whatever the model says. As long as there are
        some, the first of them is the only one allowed: taking all at once changes nothing."""


class CompiledGrammar(Protocol):
    """A grammar and a tokenizer together."""

    def matcher(self) -> Matcher:
        """For an answer that is yet empty."""


class GrammarLibrary(Protocol):
    """Compiles grammars for one tokenizer. Any thread may call it."""

    @property
    def vocab_size(self) -> int: ...

    def compile(self, grammar: Grammar) -> CompiledGrammar:
        """Raises GrammarError."""

    def fill(self, matchers: Many[Matcher], mask: Mask) -> None:
        """Write which tokens each matcher allows next, the end of sequence among them where its
        grammar may end; matchers and rows correspond. What cannot be told leaves `error`."""


def new_mask(rows: int, vocab_size: int) -> Mask:
    """A mask [R, W] that allows nothing."""
    return np.zeros((rows, -(-vocab_size // 32)), dtype=np.int32)


def allowed_tokens(mask: Mask, vocab_size: int) -> NDArray[np.bool_]:
    """The mask as booleans [R, V]."""
    bits = np.unpackbits(mask.view(np.uint8), axis=1, count=vocab_size, bitorder="little")
    return bits.view(np.bool_)
