from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer

from executor.fake import ByteTokenizer
from executor.loading import Checkpoint, load_tokenizer
from executor.prompts import PromptText
from executor.text import HfTokenizer, StopWatcher
from tests.support.chat_templates import HERMES, LLAMA, MISTRAL, QWEN3
from tests.support.prompts import chat_ids
from tests.support.tiny_models import save_tiny, tiny_config
from tests.support.tokenizer_families import byte_fallback, byte_level, unigram


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


def test_a_stop_that_is_kept_is_cut_behind() -> None:
    watcher = StopWatcher(ByteTokenizer().stream(), ["cd", "bcd"], keeps=True)
    cuts = [watcher.step(byte, watching=True) for byte in b"abcd"]
    assert cuts == [None, None, None, 4]
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
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny(folder, tiny_config("llama"))
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> HfTokenizer:
    return load_tokenizer(Checkpoint(source=str(folder)), vocab_size=128)


def test_chat_is_rendered_by_the_models_own_template(tokenizer: HfTokenizer) -> None:
    ids = chat_ids(tokenizer, [{"role": "user", "content": "ab"}])
    assert ids[0] == 1
    assert ids[-1] == 2
    assert tokenizer.decode(ids) == "ab"


def with_template(template: Any, folder: Path) -> HfTokenizer:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = template
    return HfTokenizer(tokenizer, frozenset(), 128)


ADD = {"type": "function", "function": {"name": "add", "description": "", "parameters": {}}}
HI = {"role": "user", "content": "Hi"}


@pytest.mark.parametrize("template", [HERMES, QWEN3, LLAMA, MISTRAL])
def test_tools_are_written_by_the_models_own_template(template: str, folder: Path) -> None:
    tokenizer = with_template(template, folder)
    assert "tools" in tokenizer.template_variables
    assert '"name":"add"' in tokenizer.decode(chat_ids(tokenizer, [HI], tools=[ADD])).replace(
        '": "', '":"'
    )
    assert "add" not in tokenizer.decode(chat_ids(tokenizer, [HI]))


def test_calls_and_results_are_written_by_the_models_own_template(folder: Path) -> None:
    tokenizer = with_template(HERMES, folder)
    function = {"name": "add", "arguments": {"a": 1}}
    called = {"role": "assistant", "content": "", "tool_calls": [{"function": function}]}
    result = {"role": "tool", "content": "2", "tool_call_id": "x"}
    text = tokenizer.decode(chat_ids(tokenizer, [HI, called, result]))
    assert '{"name": "add", "arguments": {"a": 1}}' in text
    assert text.index("tool_call>") < text.index("<|im_start|>tool")


def test_switches_reach_the_template(folder: Path) -> None:
    tokenizer = with_template(QWEN3, folder)
    assert tokenizer.template_variables >= {"enable_thinking", "add_generation_prompt"}
    off = tokenizer.decode(chat_ids(tokenizer, [HI], variables={"enable_thinking": False}))
    assert off.endswith("</think>")
    assert "think" not in tokenizer.decode(chat_ids(tokenizer, [HI]))


def test_the_last_message_can_stay_open(folder: Path) -> None:
    tokenizer = with_template(HERMES, folder)
    said = [HI, {"role": "assistant", "content": "Once upon"}]
    text = tokenizer.decode(
        chat_ids(tokenizer, said, add_generation_prompt=False, continue_final_message=True)
    )
    assert text.endswith("Once upon")
    assert tokenizer.decode(chat_ids(tokenizer, said, add_generation_prompt=False)).endswith(
        "Once upon<|im_end|>"
    )


@pytest.mark.parametrize(
    ("template", "variables"),
    [
        (None, set()),
        ("{{ oops", set()),
        ({"default": "{{ messages }}", "tool_use": "{{ tools }}"}, {"messages", "tools"}),
        (
            "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}"
            "{% if stop %}{% break %}{% endif %}{% endfor %}",
            {"messages", "stop"},
        ),
    ],
)
def test_variables_are_what_a_template_reads_from_outside(
    template: Any, variables: set[str], folder: Path
) -> None:
    assert with_template(template, folder).template_variables == variables


def test_template_that_refuses_gives_its_reason(folder: Path) -> None:
    strict = AutoTokenizer.from_pretrained(folder)
    strict.chat_template = "{{ raise_exception('roles must alternate') }}"
    refusing = HfTokenizer(strict, frozenset(), 128)
    with pytest.raises(ValueError, match="chat template refuses it: roles must alternate"):
        chat_ids(refusing, [{"role": "user", "content": "ab"}])
    strict.chat_template = None
    with pytest.raises(ValueError, match="no chat template; use /v1/completions"):
        chat_ids(refusing, [{"role": "user", "content": "ab"}])


def test_token_bytes_of_all_tokens_join_to_the_text(tokenizer: HfTokenizer) -> None:
    text = "Hi there! 7"
    joined = b"".join(tokenizer.token_bytes(i) for i in tokenizer.encode(text))
    assert joined == text.encode()


@pytest.mark.parametrize("family", [byte_level, byte_fallback])
@pytest.mark.parametrize("spoken", ["", "no ", "é"])
def test_a_character_that_is_cut_is_left_out(
    family: Callable[[], HfTokenizer], spoken: str
) -> None:
    tokenizer = family()
    (eos,) = tokenizer.eos_token_ids
    whole = [*tokenizer.encode(f"{spoken}👋"), eos]
    assert tokenizer.decode(whole).lstrip() == f"{spoken}👋"
    for missing in (1, 2, 3):
        assert tokenizer.decode([*whole[: -missing - 1], eos]).lstrip() == spoken


@pytest.mark.parametrize("family", [byte_level, byte_fallback])
def test_bytes_that_are_no_character_are_shown_as_such(family: Callable[[], HfTokenizer]) -> None:
    tokenizer = family()
    *_, first, second, _, _ = tokenizer.encode("👋")
    text = tokenizer.decode([first, second, *tokenizer.encode("no")])
    assert text.startswith("\N{REPLACEMENT CHARACTER}")
    assert text.endswith("no")


def test_token_bytes_of_a_special_token_are_its_name(tokenizer: HfTokenizer) -> None:
    assert tokenizer.token_bytes(2) == b"</s>"


def test_end_of_sequence_ids_come_from_tokenizer_and_generation_config(
    tokenizer: HfTokenizer, tmp_path: Path
) -> None:
    assert tokenizer.eos_token_ids == {2}
    save_tiny(tmp_path, tiny_config("llama", eos_token_id=[2, 7]))
    assert load_tokenizer(Checkpoint(source=str(tmp_path)), vocab_size=128).eos_token_ids == {2, 7}


TEXTS = ["", "no", "no no 👋", "é </s> no", "</s></s>", " no  ", "no " * 50]


@pytest.mark.parametrize("family", [byte_level, byte_fallback, unigram])
@pytest.mark.parametrize("special_tokens", [True, False])
def test_texts_together_are_encoded_as_transformers_encodes_each(
    family: Callable[[], HfTokenizer], special_tokens: bool
) -> None:
    tokenizer = family()
    own = tokenizer._tokenizer
    _put_around(own.backend_tokenizer, "</s>")
    prompts = [PromptText(text=text, special_tokens=special_tokens) for text in TEXTS]
    assert tokenizer.encode_batch(prompts) == [
        own(text, add_special_tokens=special_tokens)["input_ids"] for text in TEXTS
    ]
    assert tokenizer.encode_batch([]) == []


def _put_around(tokenizer: Any, token: str) -> None:
    """As models do that have a token before and one behind every text."""
    special = [(token, tokenizer.token_to_id(token))]
    tokenizer.post_processor = TemplateProcessing(
        single=f"{token} $A {token}", pair=None, special_tokens=special
    )
