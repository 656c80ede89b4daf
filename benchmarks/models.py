"""The models that engines are measured on, by name, and how those are made that nobody offers.

| name | weights |
|---|---|
| `default` | the default model's, stored in float32 |
| `default-bf16` | the same values rounded to bfloat16, as most checkpoints on the hub are stored |
| `qwen3-0.6b-random` | random, in the shape of Qwen3-0.6B, in bfloat16; the default's tokens |
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import platformdirs
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from batchjobs.worker.default_model import fetch_weights

DEFAULT = "default"
_SEED = 20261201
_EMBEDDING_SPREAD, _ATTENTION_SHARPNESS, _LOGIT_SCALE = 0.02, 1.5, 4.0
"""Of random models: logits then have a standard deviation of 2.6 over Qwen3-0.6B's vocabulary, and
an answer of 40 tokens has about 30 different ones."""

QWEN3_06B: Mapping[str, Any] = {
    "vocab_size": 151936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"},
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
}
"""Ids of special tokens are those of the default model's tokenizer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchModel:
    """A checkpoint's folder and what engines are told for it: `settings` are ours
    (`batchjobs.settings`), `kv_cache_gib` is what vLLM may use for its cache."""

    name: str
    folder: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    kv_cache_gib: int = 3


def choose(chosen: str, folder: Path) -> BenchModel:
    """The model of this name, made below `folder` if it is not there; or that of a folder.

    Raises:
        ValueError: it is neither.
        ModelError: the default model cannot be fetched.
    """
    if chosen in _CHOICES:
        return _CHOICES[chosen](folder / "models")
    if Path(chosen).is_dir():
        return BenchModel(name=Path(chosen).name, folder=Path(chosen))
    names = ", ".join(_CHOICES)
    raise ValueError(f"--model {chosen!r} is neither one of {names} nor a folder.")


def _default(_: Path) -> BenchModel:
    return BenchModel(name=DEFAULT, folder=_fetched())


def _default_bf16(models: Path) -> BenchModel:
    name = "default-bf16"
    made = made_once(
        models / name, lambda folder: write_rounded_copy(_fetched(), folder, torch.bfloat16)
    )
    return BenchModel(name=name, folder=made)


def _qwen3(models: Path) -> BenchModel:
    name = "qwen3-0.6b-random"
    config = AutoConfig.for_model("qwen3", **QWEN3_06B)
    made = made_once(models / name, lambda folder: write_random_model(config, _fetched(), folder))
    # Random text repeats nothing that could be guessed, and vLLM guesses nothing either.
    settings = {"num_speculative_tokens": 0}
    return BenchModel(name=name, folder=made, settings=settings, kv_cache_gib=5)


_CHOICES: dict[str, Callable[[Path], BenchModel]] = {
    DEFAULT: _default,
    "default-bf16": _default_bf16,
    "qwen3-0.6b-random": _qwen3,
}
NAMES = tuple(_CHOICES)


def _fetched() -> Path:
    return fetch_weights(Path(platformdirs.user_cache_dir("batchjobs")) / "models")


def made_once(target: Path, write: Callable[[Path], None]) -> Path:
    """`target`, which `write` fills if it is not there. One that fails leaves none."""
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f"{target.name}-") as started:
            write(Path(started) / target.name)
            (Path(started) / target.name).rename(target)
    return target


def write_rounded_copy(source: Path, target: Path, dtype: torch.dtype) -> None:
    """The checkpoint `source` with its weights rounded to `dtype`, and everything else as is."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.safetensors"))
    for file in source.glob("*.safetensors"):
        rounded = {name: _rounded(tensor, dtype) for name, tensor in load_file(file).items()}
        save_file(rounded, target / file.name, metadata={"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    config.pop("torch_dtype", None)
    stored = {"dtype": str(dtype).removeprefix("torch.")}
    (target / "config.json").write_text(json.dumps({**config, **stored}, indent=2))


def _rounded(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def write_random_model(config: Any, tokenizer: Path, target: Path) -> None:
    """Seeded random weights in bfloat16, with the tokenizer of the checkpoint `tokenizer`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        _scatter(model)
    model.save_pretrained(target)
    for name in ("tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json"):
        if (tokenizer / name).exists():
            shutil.copy(tokenizer / name, target)
    grown = grown_tokenizer((tokenizer / "tokenizer.json").read_text(), config.vocab_size)
    (target / "tokenizer.json").write_text(grown)


@torch.no_grad()
def _scatter(model: torch.nn.Module) -> None:
    """Weights with which greedy answers go on changing.

    As transformers draws them, the embedding outweighs what layers add, or all attend to
    everything alike, and the head, which is the embedding, names the same few tokens again and
    again.
    """
    for name, parameter in model.named_parameters():
        if "embed_tokens" in name:
            parameter.normal_(std=_EMBEDDING_SPREAD)
        elif parameter.dim() > 1:
            parameter.normal_(std=parameter.shape[1] ** -0.5)
        elif name.endswith(("q_norm.weight", "k_norm.weight")):
            parameter.fill_(_ATTENTION_SHARPNESS)
        elif name == "model.norm.weight":
            parameter.fill_(_LOGIT_SCALE)


def grown_tokenizer(text: str, vocab_size: int) -> str:
    """A `tokenizer.json` of BPE with a token for every id below `vocab_size`.

    No merge leads to the new ones, so that every text has the same ids as before; and ids that a
    random model draws can be told as text.
    """
    tokenizer = json.loads(text)
    vocabulary = tokenizer["model"]["vocab"]
    taken = {*vocabulary.values(), *(token["id"] for token in tokenizer["added_tokens"])}
    missing = (number for number in range(vocab_size) if number not in taken)
    vocabulary.update({f"<unused{number}>": number for number in missing})
    return json.dumps(tokenizer, ensure_ascii=False)
