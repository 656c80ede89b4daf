"""A tokenizer that tests can reckon with: one token a byte."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

TURN_END = 256
NAMES = {TURN_END: b"<end>"}


class ByteTokenizer:
    """Bytes 0 to 255 are their own token ids. A message is `role:content` and `TURN_END`; the
    answer opens with `assistant:`. A template that wants it otherwise: no system message but the
    first."""

    vocab_size = 257

    def render_chat(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        if any(message["role"] == "system" for message in messages[1:]):
            raise ValueError("a system message must come first")
        tokens: list[int] = []
        for message in messages:
            tokens += [*f"{message['role']}:{message['content']}".encode(), TURN_END]
        return [*tokens, *b"assistant:"]

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def token_bytes(self, token_id: int) -> bytes:
        return NAMES.get(token_id) or bytes([token_id])
