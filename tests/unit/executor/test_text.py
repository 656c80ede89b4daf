from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from executor.fake import ByteTokenizer
from executor.loading import Checkpoint, load_tokenizer
from executor.text import HfTokenizer, StopWatcher
from tests.support.tiny_models import save_tiny, tiny_config


def watch(text: str, stops: list[str]) -> tuple[int | None, StopWatcher]:
    watcher = StopWatcher(ByteTokenizer().stream(), stops)
    for byte in text.encode():
        if (cut := watcher.step(byte, watching=True)) is not None:
            return cut, watcher
    return None, watcher


def test_stop_is_found_when_its_last_token_comes() -> None:
    cut, watcher = watch("one two three", ["two"])
    assert cut == 4
    assert watcher.text == "one two"
    assert watcher.tokens_before(4) == 4


def test_earliest_of_several_stops_wins() -> None:
    cut, _ = watch("abcd", ["bcd", "cd", "d"])
    assert cut == 1


def test_stop_after_multibyte_characters_is_counted_in_characters() -> None:
    cut, watcher = watch("žluťoučký kůň.", ["kůň"])
    assert cut == 10
    assert watcher.text[:10] == "žluťoučký "
    assert watcher.tokens_before(10) == len("žluťoučký ".encode())


def test_multibyte_stop_is_found() -> None:
    assert watch("ahoj 👋🏽 světe", ["👋🏽"])[0] == 5


def test_no_stop_is_found_in_other_text() -> None:
    assert watch("stopstop", ["STOP"])[0] is None


def test_unwatched_text_is_not_searched_again() -> None:
    watcher = StopWatcher(ByteTokenizer().stream(), ["ab"])
    for byte in b"ab":
        assert watcher.step(byte, watching=False) is None
    for byte in b"xx":
        assert watcher.step(byte, watching=True) is None


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> HfTokenizer:
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny(folder, tiny_config("llama"))
    return load_tokenizer(Checkpoint(source=str(folder)), vocab_size=128)


def test_chat_is_rendered_by_the_models_own_template(tokenizer: HfTokenizer) -> None:
    ids = tokenizer.render_chat([{"role": "user", "content": "ab"}])
    assert ids[0] == 1
    assert ids[-1] == 2
    assert tokenizer.decode(ids) == "ab"


def test_template_that_refuses_gives_its_reason(tokenizer: HfTokenizer, tmp_path: Path) -> None:
    save_tiny(tmp_path, tiny_config("llama"))
    strict = AutoTokenizer.from_pretrained(tmp_path)
    strict.chat_template = "{{ raise_exception('roles must alternate') }}"
    refusing = HfTokenizer(strict, frozenset(), 128)
    with pytest.raises(ValueError, match="chat template refuses it: roles must alternate"):
        refusing.render_chat([{"role": "user", "content": "ab"}])
    strict.chat_template = None
    with pytest.raises(ValueError, match="no chat template; use /v1/completions"):
        refusing.render_chat([{"role": "user", "content": "ab"}])


def test_token_bytes_of_all_tokens_join_to_the_text(tokenizer: HfTokenizer) -> None:
    text = "Hi there! 7"
    joined = b"".join(tokenizer.token_bytes(i) for i in tokenizer.encode(text))
    assert joined == text.encode()


def test_token_bytes_of_a_special_token_are_its_name(tokenizer: HfTokenizer) -> None:
    assert tokenizer.token_bytes(2) == b"</s>"


def test_end_of_sequence_ids_come_from_tokenizer_and_generation_config(
    tokenizer: HfTokenizer, tmp_path: Path
) -> None:
    assert tokenizer.eos_token_ids == {2}
    save_tiny(tmp_path, tiny_config("llama", eos_token_id=[2, 7]))
    assert load_tokenizer(Checkpoint(source=str(tmp_path)), vocab_size=128).eos_token_ids == {2, 7}
