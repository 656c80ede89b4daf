"""The checkpoints that engines are measured on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoTokenizer

from benchmarks.models import (
    QWEN3_06B,
    choose,
    grown_tokenizer,
    made_once,
    write_random_model,
    write_rounded_copy,
)
from benchmarks.workload_files import write_workload
from executor.build import build_engine
from executor.loading import Checkpoint
from executor.request import Request, SamplingParams
from executor.settings import EngineSettings
from tests.support.tiny_models import save_tiny, tiny_config

TEXT = "Rivers and 7 bridges!"


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    save_tiny(tmp_path / "tiny", tiny_config("llama"))
    return tmp_path / "tiny"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_copy_has_the_same_weights_in_16_bits_and_the_same_tokenizer(
    tiny: Path, tmp_path: Path, dtype: torch.dtype
) -> None:
    copy = tmp_path / "copy"
    write_rounded_copy(tiny, copy, dtype)
    before, after = load_file(tiny / "model.safetensors"), load_file(copy / "model.safetensors")
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        assert torch.equal(tensor.to(dtype), after[name]), name
    assert AutoConfig.from_pretrained(copy).dtype == dtype
    for file in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (tiny / file).read_bytes() == (copy / file).read_bytes()


def test_the_random_shape_is_that_of_qwen3_06b() -> None:
    from transformers import AutoModelForCausalLM

    config = AutoConfig.for_model("qwen3", **QWEN3_06B)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    sizes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    assert sizes["model.embed_tokens.weight"] == (151936, 1024)
    assert sizes["model.layers.27.self_attn.q_proj.weight"] == (2048, 1024)
    assert sizes["model.layers.0.self_attn.k_proj.weight"] == (1024, 1024)
    assert sizes["model.layers.0.mlp.up_proj.weight"] == (3072, 1024)
    assert "lm_head.weight" not in sizes  # the head is the embeddings
    assert sum(p.numel() for p in model.parameters()) == 596_049_920
    assert config.rope_parameters["rope_theta"] == 1e6


def test_a_random_model_answers_with_many_tokens_and_is_the_same_every_time(
    tiny: Path, tmp_path: Path
) -> None:
    config = tiny_config("qwen3", vocab_size=400, tie_word_embeddings=True)
    for name in ("first", "second"):
        write_random_model(config, tiny, tmp_path / name)
    first, second = (tmp_path / name / "model.safetensors" for name in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()
    assert {tensor.dtype for tensor in load_file(first).values()} == {torch.bfloat16}
    settings = EngineSettings(dtype="float32", kv_cache_memory=1 << 22)
    engine = build_engine(Checkpoint(source=str(tmp_path / "first")), settings).engine
    sampling = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
    requests = [
        Request(id=str(start), prompt_token_ids=(start, start + 1, start + 2), sampling=sampling)
        for start in (3, 30, 90)
    ]
    answers = [completion.choices[0].token_ids for completion in engine.run(requests)]
    assert all(len(set(answer)) > 12 for answer in answers)


def test_a_grown_tokenizer_gives_texts_the_same_tokens_and_every_id_a_text(
    tiny: Path, tmp_path: Path
) -> None:
    grown = tmp_path / "grown"
    grown.mkdir()
    (grown / "tokenizer_config.json").write_bytes((tiny / "tokenizer_config.json").read_bytes())
    text = (tiny / "tokenizer.json").read_text()
    (grown / "tokenizer.json").write_text(grown_tokenizer(text, 200))
    old, new = AutoTokenizer.from_pretrained(tiny), AutoTokenizer.from_pretrained(grown)
    assert len(old) == 128
    assert len(new) == 200
    assert old.encode(TEXT) == new.encode(TEXT)
    assert all(new.decode([number]) for number in range(128, 200))


def test_what_fails_half_way_leaves_no_model(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        made_once(tmp_path / "models" / "m", fail)
    assert list((tmp_path / "models").iterdir()) == []
    made_once(tmp_path / "models" / "m", lambda folder: folder.mkdir())

    def must_not(folder: Path) -> None:
        raise AssertionError("it is there already")

    assert made_once(tmp_path / "models" / "m", must_not).is_dir()


def test_a_folder_is_a_model_and_anything_else_is_said_to_be_none(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    chosen = choose(str(folder), tmp_path)
    assert (chosen.name, chosen.folder, chosen.settings) == ("mine", folder, {})
    with pytest.raises(ValueError, match="neither one of default, default-bf16"):
        choose("maybe", tmp_path)


@pytest.mark.model
def test_natural_answers_all_have_the_same_limit(default_model: Path, tmp_path: Path) -> None:
    file = tmp_path / "workload.json"
    size = write_workload("prefix", default_model, 3, file, natural=True)
    work = json.loads(file.read_text())
    assert (work["natural"], work["max_tokens"]) == (True, [256] * 3)
    assert (size["natural"], size["output_tokens"]) == (True, 768)
    write_workload("prefix", default_model, 3, file, natural=True, most_tokens=9)
    assert json.loads(file.read_text())["max_tokens"] == [9] * 3
    write_workload("prefix", default_model, 3, file)
    work = json.loads(file.read_text())
    assert not work["natural"]
    assert len(set(work["max_tokens"])) > 1
