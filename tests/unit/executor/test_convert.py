from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from executor.convert import convert_gguf
from executor.errors import UnsupportedModelError
from tests.support.gguf_files import CHAT_TEMPLATE, vocabulary, write_llama
from tests.support.tiny_models import tiny_config, tiny_model

CONFIG = tiny_config("llama", vocab_size=len(vocabulary()), tie_word_embeddings=True)


def original() -> Any:
    return tiny_model(CONFIG, attention="eager")


def write(path: Path, **changed: Any) -> Path:
    weights = {name: tensor.numpy() for name, tensor in original().state_dict().items()}
    del weights["lm_head.weight"]
    write_llama(path, weights, CONFIG, **changed)
    return path


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("converted")
    convert_gguf(write(folder / "tiny.gguf"), folder / "tiny")
    return folder / "tiny"


def test_weights_and_logits_are_those_of_the_original(converted: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(converted, attn_implementation="eager")
    ids = torch.arange(3, 40).reshape(1, -1)
    with torch.no_grad():
        assert torch.equal(model(ids).logits, original()(ids).logits)
    assert model.dtype == torch.float32


def test_every_digit_is_a_token_of_its_own(converted: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(converted)
    assert tokenizer.tokenize("in 1212") == ["i", "n", "Ġ", "1", "2", "1", "2"]


def test_spaces_before_a_number_are_not_cut_by_it(converted: Path) -> None:
    assert AutoTokenizer.from_pretrained(converted).tokenize("  7") == ["ĠĠ", "7"]


def test_text_comes_back_from_its_tokens(converted: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(converted)
    text = "  two  spaces, 1212 digits\n"
    assert tokenizer.decode(tokenizer(text).input_ids) == text


def test_chat_template_and_special_tokens_survive(converted: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(converted)
    assert tokenizer.chat_template == CHAT_TEMPLATE
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (1, 2, 2)
    assert tokenizer("a<|im_end|>").input_ids == [vocabulary().index("a"), 2]
    assert tokenizer.decode([vocabulary().index("a"), 2], skip_special_tokens=True) == "a"


def test_generation_ends_at_the_end_of_turn(converted: Path) -> None:
    assert GenerationConfig.from_pretrained(converted).eos_token_id == 2


def test_configuration_says_nothing_of_quantization(converted: Path) -> None:
    config = json.loads((converted / "config.json").read_text())
    assert "quantization_config" not in config
    assert config["tie_word_embeddings"]
    assert config["rope_parameters"]["rope_theta"] == CONFIG.rope_parameters["rope_theta"]


def test_a_folder_that_is_there_is_left_alone(converted: Path, tmp_path: Path) -> None:
    before = (converted / "model.safetensors").stat()
    convert_gguf(tmp_path / "no-such-file.gguf", converted)
    assert (converted / "model.safetensors").stat() == before


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"architecture": "unheard-of"}, "'unheard-of', which transformers .* does not read"),
        ({"pre": "unheard-of"}, "tokenizer.ggml.pre is 'unheard-of', and only gpt-2, smollm"),
    ],
)
def test_a_file_of_another_kind_is_refused(
    tmp_path: Path, changed: dict[str, str], said: str
) -> None:
    source = write(tmp_path / "other.gguf", **changed)
    with pytest.raises(UnsupportedModelError, match=said):
        convert_gguf(source, tmp_path / "models" / "other")
    assert not list((tmp_path / "models").glob("*"))


def test_a_file_that_lacks_a_tensor_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    weights = {name: tensor.numpy() for name, tensor in original().state_dict().items()}
    del weights["model.layers.0.mlp.up_proj.weight"]
    write_llama(tmp_path / "odd.gguf", weights, CONFIG)
    with pytest.raises(UnsupportedModelError, match=r"layers\.0\.mlp\.up_proj\.weight, 1 in all"):
        convert_gguf(tmp_path / "odd.gguf", tmp_path / "models" / "odd")
    assert not list((tmp_path / "models").glob("*"))


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_bytes(b"This is a text and not a model, however long." * 9)
    with pytest.raises(UnsupportedModelError, match=r"text\.gguf is not a GGUF file: it begins"):
        convert_gguf(tmp_path / "text.gguf", tmp_path / "text")


@pytest.mark.model
def test_the_default_model_knows_the_capital_of_france(default_model: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(default_model)
    model = AutoModelForCausalLM.from_pretrained(default_model)
    question = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(
        question, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    answer = model.generate(**prompt, max_new_tokens=16, do_sample=False)
    text = tokenizer.decode(answer[0, prompt.input_ids.shape[1] :])
    assert text == "The capital of France is Paris.<|im_end|>"


@pytest.mark.model
def test_the_default_model_reads_numbers_digit_by_digit(default_model: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(default_model)
    tokens = tokenizer.tokenize("costs  1234.5 in 2024")
    assert tokens == [
        *("cost", "s", "ĠĠ", "1", "2", "3", "4", ".", "5"),
        *("Ġin", "Ġ", "2", "0", "2", "4"),
    ]


@pytest.mark.parametrize(("adds", "expected"), [(True, [1]), (False, []), (None, [])])
def test_a_plain_prompt_begins_as_the_file_says(
    adds: bool | None, expected: list[int], tmp_path: Path
) -> None:
    def say(writer: Any) -> None:
        if adds is not None:
            writer.add_add_bos_token(adds)

    convert_gguf(write(tmp_path / "tiny.gguf", extra=say), tmp_path / "tiny")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "tiny")
    assert tokenizer("a").input_ids == [*expected, vocabulary().index("a")]
