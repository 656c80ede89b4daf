"""A deterministic engine without a model: real scheduling and sampling over made-up logits.

The logits of a sequence depend on its whole context as read back through its block table, so
that a block given away, shared or recomputed wrongly changes the answer.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from collections.abc import Sequence as Many
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from executor.characters import whole_characters
from executor.engine import Engine
from executor.llguidance_grammar import LLGuidance
from executor.prompts import PromptText
from executor.settings import Limits, Scheduling
from executor.span import Span
from executor.text import TextStream

VOCABULARY = 259
BOS, EOS = 256, 257
END_OF_TURN = 258

_SPECIAL = re.compile(f"<({BOS}|{EOS}|{END_OF_TURN})>")


class HashModel:
    """Stores tokens where keys would lie, and hashes what it finds there into logits."""

    def __init__(self, limits: Limits) -> None:
        self._size = limits.block_size
        self._cache = np.full((limits.num_blocks, limits.block_size), -1, dtype=np.int64)
        self._rows: list[tuple[list[int], int]] = []

    def copy_blocks(self, copies: Many[tuple[int, int]]) -> None:
        sources, targets = zip(*copies, strict=True)
        self._cache[list(targets)] = self._cache[list(sources)]

    def forward(self, spans: Many[Span]) -> Tensor:
        self._rows = []
        for span in spans:
            table = span.sequence.block_table
            for position, token in enumerate(span.tokens, span.start):
                self._cache[table[position // self._size], position % self._size] = token
                self._rows.append((table, position))
        ends = list(accumulate(span.positions for span in spans))
        return self.logits_at(
            [
                row
                for end, span in zip(ends, spans, strict=True)
                for row in range(end - span.rows, end)
            ]
        )

    def logits_at(self, rows: Many[int]) -> Tensor:
        logits = [self._logits(*self._rows[row]) for row in rows]
        return torch.stack(logits) if logits else torch.empty(0, VOCABULARY)

    def _logits(self, table: list[int], position: int) -> Tensor:
        context = self._cache[table].reshape(-1)[: position + 1]
        digest = hashlib.blake2b(context.tobytes(), digest_size=8).digest()
        generator = np.random.Generator(np.random.Philox(key=int.from_bytes(digest)))
        logits = torch.from_numpy(generator.normal(size=VOCABULARY, scale=2).astype(np.float32))
        # Printable ASCII, with an end of sequence now and then.
        logits[:32] = logits[127:EOS] = logits[END_OF_TURN] = -torch.inf
        return logits


class ByteTokenizer:
    """One token a byte; chats are rendered as `role: content` lines, behind the tools. Special
    tokens are written as their ids, `<256>`."""

    vocab_size = VOCABULARY
    chat_template = "role: content"
    template_variables = frozenset({"messages", "tools"})
    eos_token_ids = frozenset({EOS})

    def render_chat(
        self,
        messages: Many[dict[str, Any]],
        *,
        tools: Many[dict[str, Any]] = (),
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        turns = [f"{message['role']}: {message['content']}" for message in messages]
        if tools:
            turns.insert(0, f"tools: {json.dumps(list(tools))}")
        text = f"<{BOS}>" + "".join(f"{turn}<{END_OF_TURN}>" for turn in turns)
        return text.removesuffix(f"<{END_OF_TURN}>") if continue_final_message else text

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for number, piece in enumerate(_SPECIAL.split(text)):
            ids += [int(piece)] if number % 2 else piece.encode()
        return ids

    def encode_batch(self, prompts: Many[PromptText]) -> list[list[int]]:
        return [self.encode(prompt.text) for prompt in prompts]

    def decode(self, token_ids: Many[int]) -> str:
        return whole_characters(bytes(t for t in token_ids if t < BOS))

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id]) if token_id < BOS else f"<{token_id}>".encode()

    special_token_ids = frozenset({BOS, EOS, END_OF_TURN})
    serialized = None

    def special_token_id(self, name: str) -> int | None:
        return None

    def stream(self) -> TextStream:
        return _ByteStream()


class _ByteStream:
    """Holds back the bytes of a character until it is whole."""

    def __init__(self) -> None:
        self._pending = b""

    def step(self, token_id: int) -> str:
        if token_id < BOS:
            self._pending += bytes([token_id])
        try:
            text = self._pending.decode()
        except UnicodeDecodeError as error:
            if error.reason == "unexpected end of data":
                return ""
            text = self._pending.decode(errors="replace")
        self._pending = b""
        return text


def fake_engine(limits: Limits, scheduling: Scheduling | None = None) -> Engine:
    """An engine over `HashModel` and `ByteTokenizer`."""
    tokenizer = ByteTokenizer()
    library = LLGuidance(tokenizer)
    return Engine(HashModel(limits), tokenizer, limits, scheduling, library=library)
