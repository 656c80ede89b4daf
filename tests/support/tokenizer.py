"""A tokenizer that tests can reckon with: one token a byte."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from executor.prompts import PromptText

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
    ) -> str:
        if any(message["role"] == "system" for message in messages[1:]):
            raise ValueError("a system message must come first")
        self.rendered = {
            "messages": list(messages),
            "tools": list(tools),
            "variables": dict(variables or {}),
        }
        text = "".join(f"{message['role']}:{message['content']}<end>" for message in messages)
        if continue_final_message:
            return text.removesuffix("<end>")
        return f"{text}assistant:{self._opening}" if add_generation_prompt else text

    def encode(self, text: str) -> list[int]:
        first, *others = text.split("<end>")
        ids = list(first.encode())
        for other in others:
            ids += [TURN_END, *other.encode()]
        return ids

    def encode_batch(self, prompts: Sequence[PromptText]) -> list[list[int]]:
        return [self.encode(prompt.text) for prompt in prompts]

    def special_token_id(self, name: str) -> int | None:
        return next((token for token, own in NAMES.items() if own == name.encode()), None)

    def token_bytes(self, token_id: int) -> bytes:
        return NAMES.get(token_id) or bytes([token_id])
