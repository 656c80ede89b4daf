"""Tiny random embedding models of many families, in folders as they are published."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers.processors import TemplateProcessing
from transformers import AutoConfig, AutoModel

from tests.support.tiny_models import tiny_tokenizer

_COMMON = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "cls_token_id": 1,
    "sep_token_id": 2,
    "mask_token_id": 0,
}
_FROM_TWO = {"pad_token_id": 1, "max_position_embeddings": 258}

PACKED: dict[str, dict[str, Any]] = {
    "bert": {},
    "roberta": _FROM_TWO,
    "xlm-roberta": _FROM_TWO,
    "distilbert": {"dim": 32, "hidden_dim": 48, "n_layers": 3, "n_heads": 4},
    "electra": {"embedding_size": 16},
    "albert": {"embedding_size": 16},
    "modernbert": {"local_attention": 8, "global_attn_every_n_layers": 2},
    "nomic_bert": {},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 8},
    "mistral": {"num_key_value_heads": 2, "sliding_window": 6},
    "gemma3_text": {
        "num_key_value_heads": 2,
        "head_dim": 8,
        "use_bidirectional_attention": True,
        "sliding_window": 9,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
}
BY_LENGTH: dict[str, dict[str, Any]] = {
    "mpnet": {"pad_token_id": 1},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "gemma2": {"num_key_value_heads": 2, "head_dim": 8},
}
FAMILIES = PACKED | BY_LENGTH


def save_tiny_embedder(
    folder: Path,
    family: str = "bert",
    *,
    pooling: dict[str, Any] | None = None,
    dense: int | None = None,
    normalize: bool = True,
    max_seq_length: int | None = None,
    prompts: dict[str, str] | None = None,
    **config: Any,
) -> None:
    """A checkpoint folder whose tokenizer puts `<s>` before and `</s>` behind a text, and has a
    limit and padding in its file, as published ones have. `pooling` None leaves out all that is
    sentence-transformers'; `dense` is how many numbers a linear layer makes of the pooled ones."""
    model = tiny_encoder(family, **config)
    model.save_pretrained(folder)
    _save_tokenizer(folder)
    if pooling is None:
        return
    modules = [("Transformer", ""), ("Pooling", "1_Pooling")]
    _write(folder / "1_Pooling" / "config.json", pooling)
    if dense is not None:
        modules.append(("Dense", "2_Dense"))
        _save_dense(folder / "2_Dense", model.config.hidden_size, dense)
    if normalize:
        modules.append(("Normalize", "3_Normalize"))
    _write(
        folder / "modules.json",
        [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for i, (kind, path) in enumerate(modules)
        ],
    )
    _write(folder / "config_sentence_transformers.json", {"prompts": prompts or {}})
    if max_seq_length is not None:
        _write(folder / "sentence_bert_config.json", {"max_seq_length": max_seq_length})


def tiny_encoder(family: str, **overrides: Any) -> Any:
    """Random weights, large enough that attention matters to the vectors."""
    config = AutoConfig.for_model(family, **{**_COMMON, **FAMILIES[family], **overrides})
    torch.manual_seed(0)
    model = AutoModel.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.2)
    return model.float().eval()


def own_hidden(model: Any, token_ids: Sequence[int]) -> torch.Tensor:
    """The model's own vectors [T, D] of one text, through its eager attention."""
    model.set_attn_implementation("eager")
    with torch.no_grad():
        hidden: torch.Tensor = model(input_ids=torch.tensor([list(token_ids)])).last_hidden_state[0]
    return hidden


def _save_tokenizer(folder: Path) -> None:
    tokenizer = tiny_tokenizer()
    backend = tokenizer.backend_tokenizer
    backend.post_processor = TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    backend.enable_truncation(max_length=8)
    backend.enable_padding(length=16)
    tokenizer.save_pretrained(folder)


def _save_dense(folder: Path, size: int, made: int) -> None:
    config = {"in_features": size, "out_features": made, "bias": True}
    activation = "torch.nn.modules.activation.Tanh"
    _write(folder / "config.json", {**config, "activation_function": activation})
    weights = {"linear.weight": torch.randn(made, size), "linear.bias": torch.randn(made)}
    save_file(weights, folder / "model.safetensors")


def _write(path: Path, value: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value))
