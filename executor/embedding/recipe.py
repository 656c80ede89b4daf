"""What a model folder says of its embeddings, in sentence-transformers' own files.

| file | says |
|---|---|
| `modules.json` | the steps from text to vector: Transformer, Pooling, then Dense and Normalize |
| `sentence_bert_config.json` | the longest text in tokens, whether it is lowercased |
| `1_Pooling/config.json` | how token vectors become one |
| `2_Dense/config.json` | a linear layer behind it, and its activation |
| `config_sentence_transformers.json` | prompts by name; none is used unless a request names it |
| `config.json` | `matryoshka_dimensions`, `is_matryoshka`: vectors that may be cut short |

An encoder without `modules.json` is pooled by the mean and not normalised, as
sentence-transformers does with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from transformers.utils import cached_file

from executor.errors import UnsupportedModelError
from executor.loading import Checkpoint

_GENERATES = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
_ENCODES = ("Model", "ForMaskedLM", "Encoder")


class PoolingMode(StrEnum):
    """In the order in which sentence-transformers joins them; the words are its own."""

    CLS = "cls"
    MAX = "max"
    MEAN = "mean"
    MEAN_SQRT_LEN = "mean_sqrt_len_tokens"
    WEIGHTED_MEAN = "weightedmean"
    LAST = "lasttoken"


_LEGACY_MODES = {
    "pooling_mode_cls_token": PoolingMode.CLS,
    "pooling_mode_max_tokens": PoolingMode.MAX,
    "pooling_mode_mean_tokens": PoolingMode.MEAN,
    "pooling_mode_mean_sqrt_len_tokens": PoolingMode.MEAN_SQRT_LEN,
    "pooling_mode_weightedmean_tokens": PoolingMode.WEIGHTED_MEAN,
    "pooling_mode_lasttoken": PoolingMode.LAST,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseLayer:
    """A linear layer in the folder's `path`; `activation` is a name within `torch.nn`."""

    path: str
    activation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingRecipe:
    """`transformer_path` is the folder of the weights within the checkpoint, "" for itself.

    `max_tokens` None leaves the longest text to the model. `pools_prompt` says whether a
    prompt's tokens are pooled as those of the text are. `matryoshka` None: vectors are not to
    be cut; (): to any length; else: to these.
    """

    transformer_path: str = ""
    max_tokens: int | None = None
    lowercases: bool = False
    modes: tuple[PoolingMode, ...] = (PoolingMode.MEAN,)
    pools_prompt: bool = True
    dense: tuple[DenseLayer, ...] = ()
    normalizes: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    matryoshka: tuple[int, ...] | None = None


def find_recipe(checkpoint: Checkpoint) -> EmbeddingRecipe | None:
    """How the checkpoint's model embeds; None for one that generates text.

    Raises:
        UnsupportedModelError: its vectors are made in a way that is not known here, or it
            cannot be read.
    """
    modules = read_json(checkpoint, "modules.json")
    if modules is None:
        return _plain_recipe(read_json(checkpoint, "config.json") or {})
    try:
        return _recipe(checkpoint, modules)
    except (KeyError, TypeError, AttributeError, ValueError) as wrong:
        raise UnsupportedModelError(
            f"The sentence-transformers files of {checkpoint.source} cannot be understood:"
            f" {wrong!r}."
        ) from wrong


def read_json(checkpoint: Checkpoint, *path: str) -> Any:
    """The value of a file of the checkpoint, None if there is none.

    Raises:
        UnsupportedModelError: it is not JSON, or the checkpoint cannot be read.
    """
    name = "/".join(part for part in path if part)
    found = find_file(checkpoint, name)
    if found is None:
        return None
    try:
        return json.loads(found.read_text(encoding="utf-8"))
    except ValueError as wrong:
        message = f"{name} of {checkpoint.source} is not JSON: {wrong}."
        raise UnsupportedModelError(message) from wrong


def find_file(checkpoint: Checkpoint, name: str) -> Path | None:
    """Where a file of the checkpoint lies on this machine. Raises UnsupportedModelError."""
    arguments = checkpoint.arguments
    del arguments["trust_remote_code"]
    if arguments["local_files_only"]:
        path = Path(checkpoint.source) / name
        return path if path.is_file() else None
    try:
        found = cached_file(
            checkpoint.source,
            name,
            _raise_exceptions_for_missing_entries=False,
            # Without a network what was fetched before is all there is.
            _raise_exceptions_for_connection_errors=False,
            **arguments,
        )
    except Exception as error:
        reason = " ".join(str(error).split())[:400]
        raise UnsupportedModelError(f"{checkpoint.source} cannot be read: {reason}") from error
    return None if found is None else Path(found)


def _plain_recipe(config: Mapping[str, Any]) -> EmbeddingRecipe | None:
    architectures = config.get("architectures") or []
    embeds = bool(architectures) and all(
        name.endswith(_ENCODES) and not name.endswith(_GENERATES) for name in architectures
    )
    return EmbeddingRecipe(matryoshka=_matryoshka(config)) if embeds else None


def _recipe(checkpoint: Checkpoint, modules: list[dict[str, Any]]) -> EmbeddingRecipe:
    kinds = [(module["type"].rpartition(".")[2], module["path"]) for module in modules]
    (first, transformer), *rest = kinds
    if first != "Transformer" or not rest or rest[0][0] != "Pooling":
        raise UnsupportedModelError(
            "Embedding models begin with a Transformer and a Pooling module; this one has"
            f" {', '.join(kind for kind, _ in kinds)}."
        )
    texts = read_json(checkpoint, transformer, "sentence_bert_config.json") or {}
    pooling = read_json(checkpoint, rest[0][1], "config.json") or {}
    said = read_json(checkpoint, "config_sentence_transformers.json") or {}
    dense, normalizes = _head(checkpoint, rest[1:])
    return EmbeddingRecipe(
        transformer_path=transformer,
        max_tokens=texts.get("max_seq_length"),
        lowercases=bool(texts.get("do_lower_case")),
        modes=_modes(pooling),
        pools_prompt=pooling.get("include_prompt", True),
        dense=dense,
        normalizes=normalizes,
        prompts={name: prompt for name, prompt in (said.get("prompts") or {}).items() if prompt},
        matryoshka=_matryoshka(read_json(checkpoint, transformer, "config.json") or {}),
    )


def _modes(pooling: Mapping[str, Any]) -> tuple[PoolingMode, ...]:
    named = pooling.get("pooling_mode")
    if named is None:
        found = [mode for key, mode in _LEGACY_MODES.items() if pooling.get(key)]
        return tuple(found) or (PoolingMode.MEAN,)
    return tuple(map(PoolingMode, [named] if isinstance(named, str) else named))


def _head(
    checkpoint: Checkpoint, modules: list[tuple[str, str]]
) -> tuple[tuple[DenseLayer, ...], bool]:
    """The linear layers behind the pooling, and whether the vector is normalised at the end."""
    dense: list[DenseLayer] = []
    normalizes = False
    for kind, path in modules:
        match kind:
            case "Dense" if not normalizes:
                dense.append(_dense(read_json(checkpoint, path, "config.json") or {}, path))
            case "Normalize":
                normalizes = True
            case "Dropout":
                pass
            case _:
                raise UnsupportedModelError(
                    f"Embedding models with a module {kind} behind their pooling are not supported."
                )
    return tuple(dense), normalizes


def _dense(config: Mapping[str, Any], path: str) -> DenseLayer:
    activation = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    name = activation.rpartition(".")[2]
    is_usual = config.get("module_input_name", "sentence_embedding") == "sentence_embedding"
    if not activation.startswith("torch.nn.") or config.get("use_residual") or not is_usual:
        raise UnsupportedModelError(
            f"The linear layer in {path} does more than multiply and apply a function of"
            " torch.nn, which is not supported."
        )
    return DenseLayer(path=path, activation=name)


def _matryoshka(config: Mapping[str, Any]) -> tuple[int, ...] | None:
    if named := config.get("matryoshka_dimensions"):
        return tuple(sorted(named))
    return () if config.get("is_matryoshka") else None
