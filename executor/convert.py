"""GGUF file → transformers folder: float32 safetensors, tokenizer, chat template, configuration.

Done here and not by `from_pretrained(gguf_file=…)`, which needs accelerate, leaves a
`quantization_config` behind, and drops the pre-tokenizer that the file names: numbers would come
out in tokens that the model has never seen.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from executor.errors import UnsupportedModelError

if TYPE_CHECKING:
    from gguf import GGUFReader
    from tokenizers import Tokenizer

WEIGHTS = "model.safetensors"
FLOAT32 = "float32"

_CONTROL_TOKEN = 3
"""`tokenizer.ggml.token_type` of a token that text never spells."""

_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OUTER_TENSORS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}

Array = npt.NDArray[np.float32]


def is_model_folder(folder: Path) -> bool:
    """Whether a finished conversion lies there; an unfinished one never has the name."""
    return (folder / WEIGHTS).is_file() and (folder / "config.json").is_file()


def convert_gguf(source: Path, target: Path) -> None:
    """Make the folder `target` from the llama-architecture GGUF file `source`.

    The folder appears whole or not at all; one that is there already is left as it is.

    Raises:
        UnsupportedModelError: not a GGUF file, or an architecture or tokenizer not known here.
    """
    if is_model_folder(target):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        _write_folder(_read(source), partial)
        _publish(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _read(source: Path) -> GGUFReader:
    from gguf import GGUFReader

    try:
        reader = GGUFReader(source)
    except (ValueError, IndexError) as wrong:
        raise UnsupportedModelError(
            f"{source.name} is not a readable GGUF file: {wrong}"
        ) from wrong
    for name, known in (("general.architecture", "llama"), ("tokenizer.ggml.pre", "smollm")):
        if (found := _field(reader, name)) != known:
            raise UnsupportedModelError(
                f"{source.name} cannot be converted: its {name} is {found!r}, not {known!r}."
            )
    return reader


def _field(reader: GGUFReader, name: str) -> Any:
    field = reader.get_field(name)
    return None if field is None else field.contents()


def _write_folder(reader: GGUFReader, folder: Path) -> None:
    from safetensors.numpy import save_file

    save_file(dict(_weights(reader)), folder / WEIGHTS, metadata={"format": "pt"})
    _write_config(reader, folder)
    _write_tokenizer(reader, folder)


def _publish(partial: Path, target: Path) -> None:
    for file in partial.iterdir():
        file.chmod(0o644)
        with file.open("rb") as written:
            os.fsync(written.fileno())
    partial.chmod(0o755)
    try:
        partial.rename(target)
    except OSError:
        # Another process was faster, and its folder is as good as ours.
        if not is_model_folder(target):
            raise


def _weights(reader: GGUFReader) -> Iterator[tuple[str, Array]]:
    from gguf import dequantize

    heads = {
        "attn_q": int(_field(reader, "llama.attention.head_count")),
        "attn_k": int(_field(reader, "llama.attention.head_count_kv")),
    }
    for tensor in reader.tensors:
        values = np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        kind = tensor.name.split(".")[-2]
        if kind in heads:
            values = _unpermute(values, heads[kind])
        yield _tensor_name(tensor.name), values


def _tensor_name(name: str) -> str:
    if name in _OUTER_TENSORS:
        return _OUTER_TENSORS[name]
    match name.split("."):
        case ["blk", layer, kind, "weight"] if kind in _TENSORS:
            return f"model.layers.{layer}.{_TENSORS[kind]}.weight"
    raise UnsupportedModelError(
        f"The GGUF file has a tensor that a llama model has no place for: {name}."
    )


def _unpermute(weight: Array, heads: int) -> Array:
    """[heads * head, in]: from GGUF's interleaved rotary pairs back to rotary halves."""
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(rows, columns))


def _write_config(reader: GGUFReader, folder: Path) -> None:
    from transformers import GenerationConfig, LlamaConfig

    special = {
        f"{role}_token_id": _field(reader, f"tokenizer.ggml.{field}_token_id")
        for role, field in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))
    }
    config = LlamaConfig(
        architectures=["LlamaForCausalLM"],
        dtype=FLOAT32,
        hidden_size=_field(reader, "llama.embedding_length"),
        intermediate_size=_field(reader, "llama.feed_forward_length"),
        max_position_embeddings=_field(reader, "llama.context_length"),
        num_attention_heads=_field(reader, "llama.attention.head_count"),
        num_hidden_layers=_field(reader, "llama.block_count"),
        num_key_value_heads=_field(reader, "llama.attention.head_count_kv"),
        rms_norm_eps=_field(reader, "llama.attention.layer_norm_rms_epsilon"),
        rope_parameters={
            "rope_type": "default",
            "rope_theta": _field(reader, "llama.rope.freq_base"),
        },
        tie_word_embeddings=all(tensor.name != "output.weight" for tensor in reader.tensors),
        vocab_size=_field(reader, "llama.vocab_size"),
        **special,
    )
    config.save_pretrained(folder)
    GenerationConfig(**special).save_pretrained(folder)


def _write_tokenizer(reader: GGUFReader, folder: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    tokens = _field(reader, "tokenizer.ggml.tokens")
    roles = {
        f"{role}_token": tokens[_field(reader, f"tokenizer.ggml.{field}_token_id")]
        for role, field in (
            ("bos", "bos"),
            ("eos", "eos"),
            ("unk", "unknown"),
            ("pad", "padding"),
        )
    }
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=_tokenizer(reader, tokens),
        clean_up_tokenization_spaces=False,
        model_max_length=_field(reader, "llama.context_length"),
        **roles,
    )
    tokenizer.chat_template = _field(reader, "tokenizer.chat_template")
    tokenizer.save_pretrained(folder)


def _tokenizer(reader: GGUFReader, tokens: list[str]) -> Tokenizer:
    """The byte-level BPE that `tokenizer.ggml.pre=smollm` stands for: every digit by itself."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    merges = [tuple(pair.split(" ")) for pair in _field(reader, "tokenizer.ggml.merges")]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = _field(reader, "tokenizer.ggml.token_type")
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, kind in zip(tokens, kinds, strict=True)
            if kind == _CONTROL_TOKEN
        ]
    )
    return tokenizer
