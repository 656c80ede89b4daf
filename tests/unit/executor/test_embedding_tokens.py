from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from transformers import AutoTokenizer

from executor.embedding.tokens import TextTokens
from executor.loading import Checkpoint, load_tokenizer
from executor.prompts import PromptText
from tests.support.tiny_embedders import save_tiny_embedder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("embedder")
    save_tiny_embedder(found)
    return found


@pytest.fixture
def tokens(folder: Path) -> TextTokens:
    return TextTokens(load_tokenizer(Checkpoint(source=str(folder)), vocab_size=128))


def text_of(folder: Path, ids: list[int]) -> str:
    text: str = AutoTokenizer.from_pretrained(folder).decode(ids, skip_special_tokens=True)
    return text


def encode(tokens: TextTokens, text: str, **asked: Any) -> list[int]:
    [ids] = tokens.encode_batch([PromptText(text=text, **asked)])
    return ids


def test_special_tokens_stand_around_a_text(tokens: TextTokens) -> None:
    inner = encode(tokens, "abc", special_tokens=False)
    assert len(inner) == 3
    assert encode(tokens, "abc") == [1, *inner, 2]


def test_the_limit_and_padding_in_the_file_do_not_apply(tokens: TextTokens) -> None:
    assert len(encode(tokens, "a" * 40)) == 42
    assert len(encode(tokens, "")) == 2


@pytest.mark.parametrize(
    ("special_tokens", "side", "kept"),
    [
        (True, None, "abc"),
        (True, "right", "abc"),
        (True, "left", "fgh"),
        (False, "right", "abcde"),
        (False, "left", "defgh"),
    ],
)
def test_a_long_text_is_cut_on_the_side_that_is_asked(
    tokens: TextTokens,
    folder: Path,
    special_tokens: bool,
    side: Literal["left", "right"] | None,
    kept: str,
) -> None:
    ids = encode(tokens, "abcdefgh", special_tokens=special_tokens, longest=5, side=side)
    assert len(ids) == 5
    assert text_of(folder, ids) == kept
    assert (ids[0], ids[-1]) == (1, 2) or not special_tokens


def test_a_text_is_lowercased_where_the_model_wants_it(folder: Path) -> None:
    tokenizer = load_tokenizer(Checkpoint(source=str(folder)), vocab_size=128)
    lowered = encode(TextTokens(tokenizer, lowercases=True), "AbC")
    assert lowered == encode(TextTokens(tokenizer), "abc")
