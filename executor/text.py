"""Text to token ids and back, with transformers' tokenizers."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

import jinja2
import jinja2.meta
from tokenizers import Encoding
from tokenizers import Tokenizer as RustTokenizer
from tokenizers.decoders import DecodeStream

from executor.prompts import PromptText, Side

DEFAULT_TEMPLATE = "default"
_TOOLS = "tool_use"
"""Names of chat templates that transformers chooses by itself."""


class Detokenizer(Protocol):
    """The part of a tokenizer that the engine needs."""

    @property
    def eos_token_ids(self) -> frozenset[int]: ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text without special tokens; bytes that are not UTF-8 give U+FFFD. A character that is
        not whole at the end, where an answer was cut, is left out."""

    def stream(self) -> TextStream: ...


class TextStream(Protocol):
    """Decodes one sequence token by token."""

    def step(self, token_id: int) -> str:
        """The text this token completes; empty while a character is not whole."""


class StopWatcher:
    """Looks for stop strings in a growing text, also across token borders, in O(new text).

    Of the stop string that begins first the text is cut before it, or behind it where it `keeps`
    those. `lengths[i]` is how much text the first i tokens had completed.
    """

    def __init__(self, stream: TextStream, stops: Sequence[str], *, keeps: bool = False) -> None:
        self._stream = stream
        self._stops = stops
        self._keeps = keeps
        self._overlap = max(map(len, stops)) - 1
        self.text = ""
        self.lengths = [0]

    def step(self, token_id: int, *, watching: bool) -> int | None:
        """Feed a token; where the text is to be cut, once there is a stop string in it."""
        searched_from = max(0, len(self.text) - self._overlap)
        self.text += self._stream.step(token_id)
        self.lengths.append(len(self.text))
        if not watching:
            return None
        found = [
            (at, at + len(stop) if self._keeps else at)
            for stop in self._stops
            if (at := self.text.find(stop, searched_from)) >= 0
        ]
        return min(found)[1] if found else None

    def tokens_before(self, cut: int) -> int:
        """How many leading tokens lie wholly before position `cut` of the text."""
        return sum(length <= cut for length in self.lengths[1:])


class HfTokenizer:
    """A transformers fast tokenizer, with the ids that end an answer, and without the truncation
    and padding that its file may ask for."""

    def __init__(self, tokenizer: Any, eos_token_ids: frozenset[int], vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._rust: RustTokenizer = tokenizer.backend_tokenizer
        self._rust.no_truncation()
        self._rust.no_padding()
        self._rust.encode_special_tokens = tokenizer.split_special_tokens
        self._side: Side = "left" if tokenizer.truncation_side == "left" else "right"
        self.eos_token_ids = eos_token_ids
        self.vocab_size = vocab_size
        added = self._rust.get_added_tokens_decoder()
        self._added_ids = frozenset(added)
        self._special = {token.content: id for id, token in added.items() if token.special}
        self._unspoken = self.special_token_ids
        self._is_byte_level = "ByteLevel" in repr(self._rust.decoder)

    @property
    def chat_template(self) -> str:
        """The model's template as text, of several all of them; empty without one."""
        template = self._tokenizer.chat_template or ""
        return "\n".join(template.values()) if isinstance(template, dict) else template

    @property
    def template_variables(self) -> frozenset[str]:
        """The names that the template reads from outside."""
        return _variables_of(self.chat_template)

    def render_chat(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        tools: Sequence[dict[str, Any]] = (),
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The conversation and the opening of the answer, special tokens by name.

        `tools` are function definitions in the public API's shape, `variables` what else the
        template is given by name.

        Raises:
            ValueError: the model has no chat template, or the template refuses the messages.
        """
        own = self._tokenizer.chat_template
        if not own:
            raise ValueError("the model has no chat template; use /v1/completions")
        if isinstance(own, dict) and DEFAULT_TEMPLATE not in own and not (tools and _TOOLS in own):
            raise ValueError(
                f"the model has several chat templates ({', '.join(sorted(own))}) and none is"
                f" called {DEFAULT_TEMPLATE}; choose one where the model is added"
            )
        try:
            text: str = self._tokenizer.apply_chat_template(
                list(messages),
                tools=list(tools) or None,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                tokenize=False,
                **(variables or {}),
            )
        except (jinja2.TemplateError, TypeError) as error:
            raise ValueError(f"the model's chat template refuses it: {error}") from error
        return text

    def encode(self, text: str) -> list[int]:
        """Token ids of a plain prompt, with the model's own leading special tokens."""
        [ids] = self.encode_batch([PromptText(text=text)])
        return ids

    def encode_batch(self, prompts: Sequence[PromptText]) -> list[list[int]]:
        """Token ids of each. Together they take all cores and half the time, and meanwhile other
        threads run: one text alone would hold Python's lock."""
        texts = [prompt.text for prompt in prompts]
        encodings = self._rust.encode_batch_fast(texts, add_special_tokens=False)
        return [
            self._finished(encoding, prompt).ids
            for encoding, prompt in zip(encodings, prompts, strict=True)
        ]

    def _finished(self, encoding: Encoding, prompt: PromptText) -> Encoding:
        if prompt.longest is not None:
            special = self._rust.num_special_tokens_to_add(is_pair=False)
            kept = prompt.longest - (special if prompt.special_tokens else 0)
            encoding.truncate(max(0, kept), direction=prompt.side or self._side)
        return self._rust.post_process(encoding) if prompt.special_tokens else encoding

    def decode(self, token_ids: Sequence[int]) -> str:
        ids = [token for token in token_ids if token not in self._unspoken]
        unfinished = self._unfinished_bytes(ids)
        if unfinished and not self._is_byte_level:
            ids, unfinished = ids[:-unfinished], 0  # each such byte is a token of its own
        text = self._rust.decode(ids, skip_special_tokens=True)
        return text[:-1] if unfinished else text

    def stream(self) -> TextStream:
        return _RustStream(self._rust)

    @property
    def special_token_ids(self) -> frozenset[int]:
        """Tokens that stand for no text."""
        return frozenset(self._special.values())

    def special_token_id(self, name: str) -> int | None:
        """The special token that is written as `name`, if there is one."""
        return self._special.get(name)

    @property
    def serialized(self) -> str:
        """As a `tokenizer.json` holds it, without padding and truncation."""
        return self._rust.to_str()

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

    def _unfinished_bytes(self, token_ids: list[int]) -> int:
        """How many bytes at the end begin a character that is not whole."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        for token in token_ids[-_LONGEST_CHARACTER:]:
            decoder.decode(self.token_bytes(token))
        return len(decoder.getstate()[0])


_LONGEST_CHARACTER = 4
"""Bytes of UTF-8, and so the most tokens that one can be spread over."""


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


# transformers' own tag around what the model said; it says nothing about what is read.
_GENERATION_TAG = re.compile(r"\{%-?\s*(end)?generation\s*-?%\}")


@lru_cache(maxsize=16)
def _variables_of(template: str) -> frozenset[str]:
    parser = jinja2.Environment(extensions=["jinja2.ext.loopcontrols"])  # noqa: S701
    try:
        tree = parser.parse(_GENERATION_TAG.sub("", template))
    except jinja2.TemplateSyntaxError:
        return frozenset()  # rendering it says what is wrong
    return frozenset(jinja2.meta.find_undeclared_variables(tree))
