"""Tiny random models of many families, and how they answer one prompt at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

_COMMON = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
LATENT = {
    "num_key_value_heads": 4,
    "head_dim": 8,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "kv_lora_rank": 16,
    "q_lora_rank": 24,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "moe_intermediate_size": 16,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "greedy",
}
"""Multi-head latent attention, whose keys are wider than its values, and experts behind it."""
_SLIDING_PATTERN = ["sliding_attention", "full_attention", "sliding_attention"]

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": 6},
    "qwen2": {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1},
    "qwen3": {},
    "gemma2": {
        "sliding_window": 6,
        "attn_logit_softcapping": 1.0,
        "final_logit_softcapping": 5.0,
        "query_pre_attn_scalar": 8,
    },
    "gemma3_text": {"sliding_window": 6, "layer_types": _SLIDING_PATTERN},
    "phi3": {},
    "olmo2": {},
    "granite": {"attention_multiplier": 0.2, "logits_scaling": 2.0, "embedding_multiplier": 3.0},
    "qwen3_moe": {**_EXPERTS, "decoder_sparse_step": 1},
    "gpt_oss": {
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": 6,
        "layer_types": _SLIDING_PATTERN,
    },
}

_SINGLE_KV = {"num_key_value_heads": 4}

MORE_FAMILIES: dict[str, dict[str, Any]] = {
    "apertus": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
    "arcee": {},
    "bitnet": {},
    "cohere": {"logit_scale": 1.0},
    "cohere2": {
        "logit_scale": 1.0,
        "sliding_window": 6,
        "layer_types": _SLIDING_PATTERN,
    },
    "ernie4_5": {},
    "exaone4": {"sliding_window": 6, "layer_types": _SLIDING_PATTERN},
    "gemma": {},
    "gemma4_text": {
        "vocab_size_per_layer_input": 128,
        "hidden_size_per_layer_input": 8,
        "global_head_dim": 8,
        "sliding_window": 6,
        "layer_types": ["sliding_attention", "full_attention", "full_attention"],
        "num_kv_shared_layers": 0,
    },
    "glm": {"partial_rotary_factor": 0.5},
    "glm4": {"partial_rotary_factor": 0.5},
    "glm4_moe": {
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "first_k_dense_replace": 1,
        "n_group": 1,
        "topk_group": 1,
    },
    "gpt2": {},
    "gpt_bigcode": {},
    "gpt_neox": {},
    "granitemoe": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "helium": {},
    "hunyuan_v1_dense": {},
    "lfm2": {"layer_types": ["full_attention"] * 3},
    "ministral": {"sliding_window": 6},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "olmo": {},
    "olmo3": {"sliding_window": 6, "layer_types": _SLIDING_PATTERN},
    "olmoe": {"num_experts": 4, "num_experts_per_tok": 2},
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "persimmon": _SINGLE_KV,
    "phi": _SINGLE_KV,
    "phimoe": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "seed_oss": {},
    "smollm3": {},
    "starcoder2": {},
}
"""Families that are served, beside those whose packing every attention backend is tested with."""


def tiny_config(family: str, **overrides: Any) -> Any:
    own = FAMILIES.get(family) or MORE_FAMILIES.get(family, {})
    return AutoConfig.for_model(family, **{**_COMMON, **own, **overrides})


def save_tiny(folder: Path, config: Any) -> None:
    """A checkpoint folder with random weights and a byte tokenizer of 128 tokens."""
    tiny_model(config, attention="eager").save_pretrained(folder)
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}<s>{{ m.content }}{% endfor %}</s>"
    tokenizer.save_pretrained(folder)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """One token for each of 125 bytes, behind three special ones."""
    vocabulary = {"<pad>": 0, "<s>": 1, "</s>": 2}
    printable = [chr(code) for code in range(0x21, 0x7F)]
    rare = sorted(set(ByteLevel.alphabet()) - {*printable, "Ġ"})
    characters = ["Ġ", *printable, *rare][:125]
    vocabulary |= {character: i + 3 for i, character in enumerate(characters)}
    backend = Tokenizer(BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    backend.decoder = ByteLevelDecoder()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )


def tiny_model(config: Any, *, attention: str) -> Any:
    """Random weights, large enough that attention matters to the answer."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 or name.endswith("sinks"):
                parameter.normal_(std=0.2)
    return model.float().eval()
