"""Pieces of text by the name that a GGUF file gives its way of cutting."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
from transformers.integrations.gguf import gguf_tokenizer_mapping as transformers_own

from executor.errors import UnsupportedModelError
from executor.gguf_file import GgufFile
from executor.gguf_tokenizers import find_cutting

TEXT = "It's 12345 o'CLOCK, HelloWorld!\n\n  x=(a+b)//2 \u00fcber e\u0301\u6771\u4eac\u3002 "


def file(**fields: Any) -> GgufFile:
    return GgufFile(
        name="tiny.gguf",
        architecture="llama",
        fields={f"tokenizer.ggml.{name}": value for name, value in fields.items()},
        types=frozenset({"F32"}),
        elements=0,
        lost_tensors=(),
    )


def pieces(pre: str, text: str) -> list[str]:
    cutting = find_cutting(file(model="gpt2", pre=pre))
    assert cutting is not None
    found = cutting.pieces.pre_tokenize_str(text)
    return [text[start:end] for _, (start, end) in found]


@pytest.mark.parametrize(
    ("pre", "expected"),
    [
        ("gpt-2", ["It", "'s", " 12345", " a", ",", " b", "\n\n"]),
        ("smollm", ["It", "'s", " ", "1", "2", "3", "4", "5", " a", ",", " b", "\n\n"]),
        ("llama-bpe", ["It", "'s", " ", "123", "45", " a", ",", " b", "\n\n"]),
        ("qwen2", ["It", "'s", " ", "1", "2", "3", "4", "5", " a", ",", " b", "\n\n"]),
        ("tekken", ["It", "'s", " ", "1", "2", "3", "4", "5", " a", ",", " b", "\n\n"]),
        ("gpt-4o", ["It's", " ", "123", "45", " a", ",", " b", "\n\n"]),
    ],
)
def test_text_is_cut_as_the_models_own_tokenizers_do(pre: str, expected: list[str]) -> None:
    assert pieces(pre, "It's 12345 a, b\n\n") == expected


@pytest.mark.parametrize(
    "pre", ["llama-bpe", "llama3", "falcon3", "qwen2", "deepseek-r1-qwen", "tekken", "gpt-4o"]
)
def test_transformers_cuts_text_the_same_way_where_it_knows_the_name(pre: str) -> None:
    regex = transformers_own.GGUF_PRE_TOKENIZER_SPLITS[pre]
    split = Split(transformers_own.Regex(regex), behavior="isolated")
    theirs = Sequence([split, ByteLevel(add_prefix_space=False, use_regex=False)])
    expected = [TEXT[start:end] for _, (start, end) in theirs.pre_tokenize_str(TEXT)]
    assert pieces(pre, TEXT) == expected


def test_a_piece_that_is_a_token_is_kept_whole_only_where_the_model_does_so() -> None:
    """ "abc" is in the vocabulary, and no merge leads to it."""
    ids = {character: number for number, character in enumerate([*"abc", "abc"])}
    whole = {}
    for pre in ("llama-bpe", "qwen2"):
        tokenizer = Tokenizer(BPE(vocab=ids, merges=[]))
        cutting = find_cutting(file(model="gpt2", pre=pre))
        assert cutting is not None
        cutting.apply(tokenizer)
        whole[pre] = tokenizer.encode("abc").tokens
    assert whole == {"llama-bpe": ["abc"], "qwen2": ["a", "b", "c"]}


def test_a_vocabulary_of_sentencepiece_needs_no_cutting() -> None:
    assert find_cutting(file(model="llama", pre="default")) is None


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model": "rwkv"}, "tokenizer.ggml.model is 'rwkv', and only gemma4, gpt2, llama"),
        ({}, "tokenizer.ggml.model is None"),
        ({"model": "gpt2", "pre": "default"}, "tokenizer.ggml.pre is 'default', and only gpt-2"),
        ({"model": "gpt2"}, "tokenizer.ggml.pre is None"),
    ],
)
def test_another_vocabulary_is_refused_by_name(fields: dict[str, str], said: str) -> None:
    with pytest.raises(UnsupportedModelError, match=said):
        find_cutting(file(**fields))
