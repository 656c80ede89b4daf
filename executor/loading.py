"""Weights, configuration and tokenizer from a folder or a Hugging Face id."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from executor import hook
from executor.device import DevicePlan, plan_device
from executor.errors import UnsupportedModelError
from executor.generation import end_token_ids
from executor.settings import EngineSettings
from executor.stored import StoredTypes, stored_types
from executor.text import HfTokenizer

_ATTENDING = frozenset({"full_attention", "sliding_attention"})
_NO_INTERFACE = "its attention does not go through transformers' attention interface"
_RECURRENT = "the state of its recurrent layers would mix neighbouring requests"
_REFUSED = {
    "bloom": _NO_INTERFACE,
    "falcon": _NO_INTERFACE,
    "mpt": _NO_INTERFACE,
    "xglm": _NO_INTERFACE,
    "rwkv": _RECURRENT,
    "xlstm": _RECURRENT,
    "llama4": "its attention temperature counts places in the packed row, not positions",
    "llama4_text": "its attention temperature counts places in the packed row, not positions",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Where a model is: a folder, or a hub id at a pinned revision. `subfolder` is where the
    weights are within it, "" for itself. A `chat_template` stands in the place of the model's
    own."""

    source: str
    revision: str | None = None
    subfolder: str = ""
    chat_template: str | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """What every `from_pretrained` here gets: no code from the checkpoint is ever run."""
        local = Path(self.source).is_dir()
        pinned = {} if local or self.revision is None else {"revision": self.revision}
        inner = {"subfolder": self.subfolder} if self.subfolder else {}
        return {"trust_remote_code": False, "local_files_only": local, **pinned, **inner}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A causal language model on its device, calling our attention, and what goes with it."""

    module: nn.Module
    config: Any
    tokenizer: HfTokenizer
    device: DevicePlan
    num_parameters: int
    max_positions: int
    """The longest sequence the model computes the same in any company."""


def load(checkpoint: Checkpoint, settings: EngineSettings) -> LoadedModel:
    """Load for inference.

    Raises:
        UnsupportedModelError: not found, damaged, not safetensors, needs code of its own, or of
            a family that cannot be packed.
        EngineError: the asked-for device or dtype does not exist here.
    """
    config = load_config(checkpoint)
    check_family(config)
    stored = load_stored_types(checkpoint, config)
    device = plan_device(settings, stored.matrices)
    torch.set_num_threads(device.num_threads)
    hook.register()
    dtype = device.types.weights if device.is_cpu else device.types.activations
    if stored.tensors != dtype and stored.matrices == dtype:
        dtype = torch.float32  # what is not a matrix keeps its bits
    module = load_module(
        AutoModelForCausalLM,
        checkpoint,
        config,
        device.device,
        dtype,
        attn_implementation=hook.NAME,
    )
    text_config = config.get_text_config()
    tokenizer = load_tokenizer(checkpoint, vocab_size=text_config.vocab_size, config=text_config)
    return LoadedModel(
        module=module,
        config=text_config,
        tokenizer=tokenizer,
        device=device,
        num_parameters=sum(parameter.numel() for parameter in module.parameters()),
        max_positions=max_positions(text_config),
    )


def load_config(checkpoint: Checkpoint) -> Any:
    """The model's configuration. Raises UnsupportedModelError."""
    try:
        return AutoConfig.from_pretrained(checkpoint.source, **checkpoint.arguments)
    except Exception as error:
        raise _unusable(checkpoint, error) from error


def load_tokenizer(checkpoint: Checkpoint, *, vocab_size: int, config: Any = None) -> HfTokenizer:
    """The fast tokenizer, with every id that ends an answer, also those that only the model's
    `config` names. Raises UnsupportedModelError."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(checkpoint.source, **checkpoint.arguments)
    except Exception as error:
        raise _unusable(checkpoint, error) from error
    if not tokenizer.is_fast:
        raise UnsupportedModelError(f"{checkpoint.source} has no fast tokenizer (tokenizer.json).")
    # Length is checked against max_model_len; without this every long prompt prints a warning.
    tokenizer.model_max_length = 2**62
    if checkpoint.chat_template is not None:
        tokenizer.chat_template = checkpoint.chat_template
    eos = end_token_ids(checkpoint, config, tokenizer)
    return HfTokenizer(tokenizer, eos, vocab_size)


def check_family(config: Any) -> None:
    """Refuse what is known to be wrong in a packed batch. Raises UnsupportedModelError."""
    name = config.model_type
    text_config = config.get_text_config()
    if reason := _REFUSED.get(name) or _REFUSED.get(text_config.model_type):
        raise UnsupportedModelError(f"{name} models cannot be packed: {reason}.")
    kinds = set(getattr(text_config, "layer_types", None) or ()) - _ATTENDING
    if kinds:
        raise UnsupportedModelError(
            f"{name} models cannot be packed: layers of kind {', '.join(sorted(kinds))} would mix "
            "neighbouring requests."
        )


def max_positions(config: Any) -> int:
    """Longest sequence whose positions do not depend on its neighbours.

    `dynamic` and `longrope` RoPE choose their factors by the largest position of the whole
    batch, so that one long request would change all others: they end where the choice begins.
    """
    longest: int = getattr(config, "max_position_embeddings", None) or 2048
    parameters = getattr(config, "rope_parameters", None) or {}
    layered = [value for value in parameters.values() if isinstance(value, dict)]
    for rope in layered or [parameters]:
        if rope.get("rope_type") in {"dynamic", "longrope"}:
            longest = min(longest, rope.get("original_max_position_embeddings") or longest)
    return longest


def load_stored_types(checkpoint: Checkpoint, config: Any) -> StoredTypes:
    """The types of the checkpoint's weights. Raises UnsupportedModelError."""
    try:
        return stored_types(checkpoint.source, checkpoint.subfolder, config.dtype)
    except (OSError, ValueError, KeyError) as error:
        raise _unusable(checkpoint, error) from error


def load_module(
    auto_class: Any,
    checkpoint: Checkpoint,
    config: Any,
    device: torch.device,
    dtype: torch.dtype,
    *,
    may_miss: str | None = None,
    **options: Any,
) -> nn.Module:
    """The checkpoint as a model of transformers' `auto_class`, with further `options` of its own.

    Raises:
        UnsupportedModelError: damaged, not safetensors, or weights are missing, other than those
            whose name begins with `may_miss`.
    """
    transformers_logging.disable_progress_bar()
    try:
        module, info = auto_class.from_pretrained(
            checkpoint.source,
            config=config,
            dtype=dtype,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are refused below, by name
            **options,
            **checkpoint.arguments,
        )
    except Exception as error:
        raise _unusable(checkpoint, error) from error
    missing = sorted(
        key for key in info["missing_keys"] if may_miss is None or not key.startswith(may_miss)
    )
    if missing:
        raise UnsupportedModelError(
            f"Model {checkpoint.source} cannot be loaded: {len(missing)} of its weights are "
            f"missing, the first is {missing[0]}."
        )
    if mismatched := sorted(info["mismatched_keys"]):
        name, found, expected = mismatched[0]
        raise UnsupportedModelError(
            f"Model {checkpoint.source} cannot be loaded: {name} is stored as {list(found)}, and"
            f" config.json makes it {list(expected)}; the two are of different models."
        )
    ready: nn.Module = module.eval().requires_grad_(requires_grad=False).to(device)
    return ready


def _unusable(checkpoint: Checkpoint, error: Exception) -> UnsupportedModelError:
    """A damaged or unknown checkpoint makes its libraries raise almost anything."""
    reason = " ".join(str(error).split())
    if "trust_remote_code" in reason:
        return UnsupportedModelError(
            f"Model {checkpoint.source} cannot be loaded: it brings code of its own, which is never"
            " run here, for an architecture that transformers does not have; if a later version of"
            " it does, install that."
        )
    return UnsupportedModelError(f"Model {checkpoint.source} cannot be loaded: {reason[:400]}")
