"""The sources of transformers' forwards that were read, and that our fast forms compute the same.

Each table maps the digest of a forward (`source_digest`) to classes, or families, that have it.
A later transformers may change a source: its modules then run as they are, slower, until the new
source is read and entered here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from typing import Any

import transformers
from torch import nn

from executor.source_digest import digest

Known = Mapping[str, tuple[str, ...]]

NORMS: Known = {
    "554119b81ec223e9": (
        "ApertusRMSNorm", "ArceeRMSNorm", "BitNetRMSNorm", "CwmRMSNorm", "DeepseekV3RMSNorm",
        "Dots1RMSNorm", "Ernie4_5RMSNorm", "Exaone4RMSNorm", "Glm4MoeRMSNorm", "Glm4RMSNorm",
        "GlmRMSNorm", "GraniteMoeRMSNorm", "GraniteRMSNorm", "HunYuanDenseV1RMSNorm",
        "Lfm2RMSNorm", "LlamaRMSNorm", "MiniCPM3RMSNorm", "Ministral3RMSNorm",
        "MinistralRMSNorm", "MistralRMSNorm", "MixtralRMSNorm", "OlmoeRMSNorm", "Phi3RMSNorm",
        "Qwen2MoeRMSNorm", "Qwen2RMSNorm", "Qwen3MoeRMSNorm", "Qwen3RMSNorm", "SeedOssRMSNorm",
        "SmolLM3RMSNorm",
    ),
    "7fd02ca75a757f0c": ("GptOssRMSNorm", "Olmo2RMSNorm", "Olmo3RMSNorm"),
    "e6a568533651fd78": ("HeliumRMSNorm",),
    "5ec0c9f935699e96": ("Gemma4RMSNorm",),
}  # fmt: skip
"""x / sqrt(mean(x ** 2) + epsilon) * weight, in float32."""

CENTRED_NORMS: Known = {
    "ba4b3238fcc45d9a": ("Gemma2RMSNorm", "Gemma3RMSNorm", "GemmaRMSNorm", "VaultGemmaRMSNorm"),
}
"""As `NORMS`, times 1 + weight."""

GATED_MLPS: Known = {
    "c37886866ed9cfa8": (
        "CwmMLP", "DeepseekV3MLP", "Dots1MLP", "Ernie4_5MLP", "Exaone4MLP", "Glm4MoeMLP",
        "GraniteMLP", "HeliumMLP", "HunYuanDenseV1MLP", "LlamaMLP", "MiniCPM3MLP",
        "Ministral3MLP", "MinistralMLP", "MistralMLP", "Olmo2MLP", "Olmo3MLP", "OlmoMLP",
        "Qwen2MLP", "Qwen2MoeMLP", "Qwen3MLP", "Qwen3MoeMLP", "SmolLM3MLP", "StableLmMLP",
    ),
    "00124579393b0573": ("SeedOssMLP",),
    "8ccc4de8de3b4029": ("Glm4MLP", "GlmMLP", "Phi3MLP"),
}  # fmt: skip
"""down(act(gate(x)) * up(x)); the last with gate and up in one matrix, in this order. Dropout in
them is 0 outside of training."""

ROTARIES: Known = {
    "5c7e5099f5219ebb": (
        "apertus", "arcee", "bitnet", "cwm", "dots1", "exaone4", "gemma", "gemma2", "gemma3",
        "granite", "hunyuan_v1_dense", "lfm2", "llama", "ministral", "ministral3", "mistral",
        "mixtral", "olmoe", "persimmon", "phi", "phimoe", "qwen2", "qwen3", "qwen3_moe",
        "seed_oss", "smollm3", "stablelm", "starcoder2",
    ),
    "8503f48a2d780304": ("flex_olmo", "olmo", "olmo2", "olmo3"),
    "28c8a5289eac8246": ("phi3",),
    "6b06d657593fedc7": ("glm4_moe", "gpt_neox"),
}  # fmt: skip
"""x * cos + (-second half of x, first half of x) * sin; the last two leave the numbers of a head
behind the size of cos and sin as they are."""

ATTENTIONS: Known = {
    "a745673652582e1b": (
        "ArceeAttention", "GemmaAttention", "GraniteAttention", "LlamaAttention",
        "Qwen2MoeAttention",
    ),
    "ec3d9f85c861d814": ("MistralAttention", "MixtralAttention"),
    "cfd7758afe3daa04": ("CwmAttention", "MinistralAttention", "Qwen2Attention"),
    "c3c0660cdc66173a": ("Dots1Attention", "Qwen3Attention", "Qwen3MoeAttention"),
    "791551e2fa330b79": ("SmolLM3Attention",),
    "221faff524cef645": ("SeedOssAttention",),
    "e1340b43c1a115af": ("Phi3Attention",),
}  # fmt: skip
"""Queries, keys and values of one input, by q_proj, k_proj, v_proj or all by qkv_proj; heads
normalized by q_norm and k_norm if the module has these; turned by a rotary of `ROTARIES`, unless
`use_rope` is false; attention with `scaling`; o_proj. The window is the mask's."""

LAYERS: Known = {
    "02d8870702bb8f3d": (
        "ArceeDecoderLayer", "CwmDecoderLayer", "GemmaDecoderLayer", "LlamaDecoderLayer",
        "Ministral3DecoderLayer", "MinistralDecoderLayer", "MistralDecoderLayer",
        "Qwen2DecoderLayer", "Qwen2MoeDecoderLayer", "Qwen3DecoderLayer",
        "Qwen3MoeDecoderLayer", "SeedOssDecoderLayer", "SmolLM3DecoderLayer",
    ),
    "8b81206b37075b80": ("Phi3DecoderLayer",),
}  # fmt: skip
"""x += self_attn(input_layernorm(x)); x += mlp(post_attention_layernorm(x))."""

_log = logging.getLogger(__name__)


def is_known(module: nn.Module, table: Known) -> bool:
    """Whether the forward of the module is one of the table, and nobody listens in.

    Warns, once a class, of one that bears the name of a known class and has another source.
    """
    if any(part._forward_hooks or part._forward_pre_hooks for part in module.modules()):
        return False
    if digest(module) in table:
        return True
    kind: Any = type(module)
    if any(kind.__name__ in names for names in table.values()):
        _warn(kind)
    return False


@cache
def _warn(kind: Any) -> None:
    _log.warning(
        "%s of transformers %s is not the source that the fast layers were checked for: it runs "
        "module by module, which is slower.",
        kind.__name__,
        transformers.__version__,
    )
