from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from executor.build import build_engine
from executor.device import plan_device
from executor.errors import EngineError, UnsupportedModelError
from executor.loading import Checkpoint
from executor.request import Request, SamplingParams
from executor.settings import EngineSettings
from tests.support.tiny_models import save_tiny, tiny_config


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny(folder, tiny_config("llama"))
    return Checkpoint(source=str(folder))


def test_settings_go_before_the_machine() -> None:
    plan = plan_device(EngineSettings(device="cpu", dtype="bfloat16", num_threads=1), None)
    assert (plan.device.type, plan.types.weights, plan.num_threads) == ("cpu", torch.bfloat16, 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (EngineSettings(device="tpu"), "device 'tpu' is not"),
        (EngineSettings(device="mps"), "device 'mps' is not supported; use cpu or cuda"),
        (EngineSettings(dtype="int8"), "dtype 'int8' is not one of float32"),
    ],
)
def test_unknown_choice_is_refused(settings: EngineSettings, message: str) -> None:
    with pytest.raises(EngineError, match=message):
        plan_device(settings, None)


def test_limits_follow_settings_and_model(checkpoint: Checkpoint) -> None:
    settings = EngineSettings(
        device="cpu", max_num_seqs=3, max_num_batched_tokens=32, max_model_len=100, block_size=8
    )
    limits = build_engine(checkpoint, settings).engine.limits
    assert (limits.max_num_seqs, limits.max_num_batched_tokens) == (3, 32)
    assert (limits.max_model_len, limits.block_size) == (100, 8)
    assert limits.num_blocks == 3 * 13


def test_max_model_len_is_the_models_own_unless_memory_is_short(checkpoint: Checkpoint) -> None:
    assert build_engine(checkpoint, EngineSettings(device="cpu")).engine.limits.max_model_len == 256
    # 3 layers of 2 key and 2 value heads of 8 float32: 384 bytes a token.
    short = EngineSettings(device="cpu", kv_cache_memory=384 * 80, block_size=16)
    limits = build_engine(checkpoint, short).engine.limits
    assert (limits.max_model_len, limits.num_blocks) == (80, 5)


def test_memory_too_short_for_a_single_block_is_refused(checkpoint: Checkpoint) -> None:
    settings = EngineSettings(device="cpu", kv_cache_memory=1000, block_size=16)
    with pytest.raises(EngineError, match=r"max_model_len=16 tokens needs 6,144 bytes of KV cache"):
        build_engine(checkpoint, settings)


def test_memory_too_short_for_the_asked_length_is_refused(checkpoint: Checkpoint) -> None:
    settings = EngineSettings(device="cpu", kv_cache_memory=384 * 64, max_model_len=200)
    with pytest.raises(EngineError, match=r"needs .* bytes of KV cache, and 24,576 are to be had"):
        build_engine(checkpoint, settings)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_engine_answers_in_either_type(checkpoint: Checkpoint, dtype: str) -> None:
    ready = build_engine(checkpoint, EngineSettings(device="cpu", dtype=dtype))
    request = Request(
        id="r",
        prompt_token_ids=(5, 6, 7),
        sampling=SamplingParams(temperature=0, max_tokens=5, ignore_eos=True),
    )
    [completion] = ready.engine.run([request])
    assert completion.completion_tokens == 5


def test_checkpoint_that_lacks_weights_is_refused(tmp_path: Path) -> None:
    save_tiny(tmp_path, tiny_config("llama"))
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UnsupportedModelError, match=r"1 of its weights are missing, the first is"):
        build_engine(Checkpoint(source=str(tmp_path)), EngineSettings(device="cpu"))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda folder: (folder / "config.json").unlink(), "cannot be loaded"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"x"), "cannot be loaded"),
        (lambda folder: (folder / "model.safetensors").unlink(), "cannot be loaded"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "cannot be loaded|no fast tokenizer"),
    ],
    ids=["no config", "damaged weights", "no weights", "no tokenizer"],
)
def test_damaged_checkpoint_is_refused_in_one_sentence(
    damage: object, reason: str, tmp_path: Path
) -> None:
    save_tiny(tmp_path, tiny_config("llama"))
    damage(tmp_path)  # type: ignore[operator]
    with pytest.raises(UnsupportedModelError, match=reason) as refused:
        build_engine(Checkpoint(source=str(tmp_path)), EngineSettings(device="cpu"))
    assert "\n" not in str(refused.value)
