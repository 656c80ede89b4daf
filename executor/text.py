"""Text to token ids and back, with transformers' tokenizers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

import jinja2
from tokenizers import Tokenizer as RustTokenizer
from tokenizers.decoders import DecodeStream


class Detokenizer(Protocol):
    """The part of a tokenizer that the engine needs."""

    @property
    def eos_token_ids(self) -> frozenset[int]: ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text without special tokens; bytes that are not UTF-8 give U+FFFD."""

    def stream(self) -> TextStream: ...


class TextStream(Protocol):
    """Decodes one sequence token by token."""

    def step(self, token_id: int) -> str:
        """The text this token completes; empty while a character is not whole."""


class StopWatcher:
    """Looks for stop strings in a growing text, also across token borders, in O(new text).

    `lengths[i]` is how much text the first i tokens had completed.
    """

    def __init__(self, stream: TextStream, stops: Sequence[str]) -> None:
        self._stream = stream
        self._stops = stops
        self._overlap = max(map(len, stops)) - 1
        self.text = ""
        self.lengths = [0]

    def step(self, token_id: int, *, watching: bool) -> int | None:
        """Feed a token; where the earliest stop string begins, once there is one."""
        searched_from = max(0, len(self.text) - self._overlap)
        self.text += self._stream.step(token_id)
        self.lengths.append(len(self.text))
        if not watching:
            return None
        found = [at for stop in self._stops if (at := self.text.find(stop, searched_from)) >= 0]
        return min(found, default=None)

    def tokens_before(self, cut: int) -> int:
        """How many leading tokens lie wholly before position `cut` of the text."""
        return sum(length <= cut for length in self.lengths[1:])


class HfTokenizer:
    """A transformers fast tokenizer, with the ids that end an answer."""

    def __init__(self, tokenizer: Any, eos_token_ids: frozenset[int], vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._rust: RustTokenizer = tokenizer.backend_tokenizer
        self.eos_token_ids = eos_token_ids
        self.vocab_size = vocab_size
        self._added_ids = frozenset(self._rust.get_added_tokens_decoder())
        self._is_byte_level = "ByteLevel" in repr(self._rust.decoder)

    def render_chat(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        """Token ids of the conversation and the opening of the answer.

        Raises:
            ValueError: the model has no chat template, or the template refuses the messages.
        """
        if not self._tokenizer.chat_template:
            raise ValueError("the model has no chat template; use /v1/completions")
        try:
            ids: list[int] = self._tokenizer.apply_chat_template(
                list(messages), add_generation_prompt=True, tokenize=True, return_dict=False
            )
        except (jinja2.TemplateError, TypeError) as error:
            raise ValueError(f"the model's chat template refuses it: {error}") from error
        return ids

    def encode(self, text: str) -> list[int]:
        """Token ids of a plain prompt, with the model's own leading special tokens."""
        ids: list[int] = self._tokenizer(text)["input_ids"]
        return ids

    def decode(self, token_ids: Sequence[int]) -> str:
        return self._rust.decode(list(token_ids), skip_special_tokens=True)

    def stream(self) -> TextStream:
        return _RustStream(self._rust)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token stands for; special tokens give their name."""
        token = self._rust.id_to_token(token_id)
        if token is None:
            return b""
        if token_id in self._added_ids:
            return token.encode()
        if self._is_byte_level:
            return bytes(_byte_values()[character] for character in token)
        if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            return bytes([int(token[3:5], 16)])
        return token.replace("\u2581", " ").encode()


class _RustStream:
    def __init__(self, tokenizer: RustTokenizer) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)

    def step(self, token_id: int) -> str:
        return self._stream.step(self._tokenizer, token_id) or ""


@lru_cache(maxsize=1)
def _byte_values() -> dict[str, int]:
    """Which byte each character of a byte-level vocabulary stands for (as GPT-2 laid it out)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    values = {chr(byte): byte for byte in printable}
    rest = (byte for byte in range(256) if byte not in printable)
    values.update({chr(0x100 + i): byte for i, byte in enumerate(rest)})
    return values
