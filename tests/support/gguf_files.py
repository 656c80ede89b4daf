"""Small GGUF files, written as llama.cpp's converter writes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import dequantize, quantize
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
from transformers import PreTrainedTokenizerFast

Weights = dict[str, npt.NDArray[np.float32]]

NORMAL, CONTROL = 1, 3
CHAT_TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
OUTER = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def vocabulary() -> list[str]:
    """Three special tokens, then printable ASCII and the space, as byte-level BPE spells them."""
    letters = [chr(code) for code in range(33, 127)]
    return ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *letters, "Ġ", "Ċ", "ĠĠ", "12"]


def tokenizer() -> PreTrainedTokenizerFast:
    """The files' vocabulary as a tokenizer, made without reading one of them."""
    ids = {token: number for number, token in enumerate(vocabulary())}
    backend = Tokenizer(BPE(vocab=ids, merges=[("Ġ", "Ġ"), ("1", "2")]))
    backend.pre_tokenizer = Sequence(
        [Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = ByteLevelDecoder()
    made = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        additional_special_tokens=["<|endoftext|>"],
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
    )
    made.chat_template = CHAT_TEMPLATE
    return made


def stored(weights: Weights, kind: str) -> Weights:
    """What a file of that GGML type says that the weights are."""
    return {
        name: dequantize(quantize(weight, _type(weight, kind)), _type(weight, kind))
        for name, weight in weights.items()
    }


def _type(weight: npt.NDArray[np.float32], kind: str) -> GGMLQuantizationType:
    """Vectors are stored in float32 beside matrices of the type, as llama.cpp does."""
    return GGMLQuantizationType[kind if weight.ndim > 1 else "F32"]


def write_llama(
    path: Path,
    weights: Weights,
    config: Any,
    *,
    kind: str = "F32",
    extra: Callable[[GGUFWriter], None] = lambda writer: None,
    **changed: str,
) -> None:
    """`weights` by their transformers names, in the GGML type `kind`; `changed` takes the place of
    string fields, and `extra` adds fields or tensors."""
    writer = GGUFWriter(path, "llama")
    if "architecture" in changed:
        writer.add_string("general.architecture", changed["architecture"])
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    _add_tokenizer(writer, changed.get("pre", "smollm"))
    for name, weight in weights.items():
        raw = _permuted(name, weight, config)
        raw_dtype = _type(weight, kind)
        writer.add_tensor(_gguf_name(name), quantize(raw, raw_dtype), raw_dtype=raw_dtype)
    extra(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: GGUFWriter, pre: str) -> None:
    tokens = vocabulary()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([CONTROL] * 3 + [NORMAL] * (len(tokens) - 3))
    writer.add_token_merges(["Ġ Ġ", "1 2"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(CHAT_TEMPLATE)


def _gguf_name(name: str) -> str:
    if name in OUTER:
        return OUTER[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{NAMES.get(rest.removesuffix('.weight'), rest)}.weight"


def _permuted(name: str, weight: npt.NDArray[np.float32], config: Any) -> npt.NDArray[np.float32]:
    """Rotary halves → interleaved pairs, in the query and key projections."""
    heads = {
        "q_proj": config.num_attention_heads,
        "k_proj": config.num_key_value_heads,
    }.get(name.split(".")[-2])
    if heads is None:
        return weight
    rows, columns = weight.shape
    halves = weight.reshape(heads, 2, rows // heads // 2, columns)
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows, columns))
