"""A tokenizer that tests can reckon with: one token a byte."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

TURN_END = 256
NAMES = {TURN_END: b"<end>"}


class ByteTokenizer:
    """Bytes 0 to 255 are their own token ids. A message is `role:content` and `TURN_END`; the
    answer opens with `assistant:` and `opening`. A template that wants it otherwise: no system
    message but the first. `rendered` is what it was last given."""

    vocab_size = 257

    def __init__(
        self, template: str = "", *, variables: Iterable[str] = (), opening: str = ""
    ) -> None:
        self.chat_template = template
        self.template_variables = frozenset({"messages", *variables})
        self.rendered: dict[str, Any] = {}
        self._opening = opening

    def render_chat(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        tools: Sequence[dict[str, Any]] = (),
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> list[int]:
        if any(message["role"] == "system" for message in messages[1:]):
            raise ValueError("a system message must come first")
        self.rendered = {
            "messages": list(messages),
            "tools": list(tools),
            "variables": dict(variables or {}),
        }
        tokens: list[int] = []
        for message in messages:
            tokens += [*f"{message['role']}:{message['content']}".encode(), TURN_END]
        if continue_final_message:
            return tokens[:-1]
        return (
            [*tokens, *f"assistant:{self._opening}".encode()] if add_generation_prompt else tokens
        )

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def special_token_id(self, name: str) -> int | None:
        return next((token for token, own in NAMES.items() if own == name.encode()), None)

    def token_bytes(self, token_id: int) -> bytes:
        return NAMES.get(token_id) or bytes([token_id])
