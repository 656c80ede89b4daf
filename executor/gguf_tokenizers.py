"""How a byte-level vocabulary of a GGUF file cuts text before it merges bytes.

The file names the way in `tokenizer.ggml.pre`; the pieces are those of llama.cpp and of the models'
own `tokenizer.json`. Vocabularies of sentencepiece need none of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex, Tokenizer
from tokenizers.normalizers import NFC
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Sequence, Split

from executor.errors import UnsupportedModelError
from executor.gguf_file import GgufFile

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CONTRACTED = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"


def _cased(contracted: str, numbers: str) -> str:
    """Words cut where lower case turns to upper case."""
    start = r"[^\r\n\p{L}\p{N}]?"
    return (
        rf"{start}{_UPPER}*{_LOWER}+{contracted}|{start}{_UPPER}+{_LOWER}*{contracted}"
        rf"|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


def _split(pattern: str) -> PreTokenizer:
    cut = Split(Regex(pattern), behavior="isolated")
    return Sequence([cut, ByteLevel(add_prefix_space=False, use_regex=False)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutting:
    """Pieces of text before bytes are merged. Some vocabularies take a piece that is a token of
    theirs whole (`keeps_whole`), or text in its composed form only (`composes`)."""

    pieces: PreTokenizer
    keeps_whole: bool = False
    composes: bool = False

    def apply(self, tokenizer: Tokenizer) -> None:
        """Cut as this says from now on."""
        tokenizer.pre_tokenizer = self.pieces
        tokenizer.model.ignore_merges = self.keeps_whole
        if self.composes:
            tokenizer.normalizer = NFC()


_BYTES = ByteLevel(add_prefix_space=False)
_GPT2 = Cutting(pieces=_BYTES)
_DIGITS = Cutting(pieces=Sequence([Digits(individual_digits=True), _BYTES]))
_LLAMA3_CUTS = Cutting(pieces=_split(_LLAMA3), keeps_whole=True)
_QWEN2_CUTS = Cutting(pieces=_split(_QWEN2), composes=True)

_CUTTINGS: dict[str, Cutting] = {
    "gpt-2": _GPT2,
    "smollm": _DIGITS,
    "starcoder": _DIGITS,
    "refact": _DIGITS,
    "llama-bpe": _LLAMA3_CUTS,
    "llama3": _LLAMA3_CUTS,
    "llama-v3": _LLAMA3_CUTS,
    "falcon3": _LLAMA3_CUTS,
    "qwen2": _QWEN2_CUTS,
    "deepseek-r1-qwen": _QWEN2_CUTS,
    "tekken": Cutting(pieces=_split(_cased("", r"\p{N}")), keeps_whole=True),
    "gpt-4o": Cutting(pieces=_split(_cased(_CONTRACTED, r"\p{N}{1,3}"))),
}
_BYTE_LEVEL = "gpt2"
_SENTENCEPIECE = frozenset({"llama", "gemma4"})


def find_cutting(file: GgufFile) -> Cutting | None:
    """How the file's vocabulary cuts text; None where transformers builds that itself.

    Raises:
        UnsupportedModelError: a kind of vocabulary, or a way of cutting, that is not known here.
    """
    kind = file.fields.get("tokenizer.ggml.model")
    if kind in _SENTENCEPIECE:
        return None
    if kind != _BYTE_LEVEL:
        raise UnsupportedModelError(
            f"{file.name} cannot be converted: its tokenizer.ggml.model is {kind!r}, and only"
            f" {', '.join(sorted({_BYTE_LEVEL, *_SENTENCEPIECE}))} are known here."
        )
    name = file.fields.get("tokenizer.ggml.pre")
    if name not in _CUTTINGS:
        raise UnsupportedModelError(
            f"{file.name} cannot be converted: its tokenizer.ggml.pre is {name!r}, and only"
            f" {', '.join(_CUTTINGS)} are known here."
        )
    return _CUTTINGS[name]
