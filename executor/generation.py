"""What a checkpoint says of its answers: how they are sampled best, and which tokens end them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import GenerationConfig

from executor.errors import UnsupportedModelError

if TYPE_CHECKING:
    from executor.loading import Checkpoint

SAMPLING_DEFAULTS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""What of it is a sampling parameter, as vLLM reads it too."""

_FILE = "generation_config.json"


def own_sampling(checkpoint: Checkpoint) -> dict[str, float]:
    """The sampling parameters that the checkpoint names, by vLLM's names; none without a file.

    Raises:
        UnsupportedModelError: the file is damaged.
    """
    config = _generation_config(checkpoint)
    named = {} if config is None else config.to_diff_dict()
    return {name: named[name] for name in SAMPLING_DEFAULTS if named.get(name) is not None}


def end_token_ids(checkpoint: Checkpoint, config: Any, tokenizer: Any) -> frozenset[int]:
    """Every id that ends an answer: the tokenizer's, and those of `generation_config.json` or,
    where that names none, of `config`, as in transformers' own generation.

    Raises:
        UnsupportedModelError: the file is damaged.
    """
    generation = _generation_config(checkpoint)
    named = None if generation is None else generation.eos_token_id
    if named is None:
        named = getattr(config, "eos_token_id", None)
    return frozenset([*_ids(tokenizer.eos_token_id), *_ids(named)])


def _ids(said: int | Iterable[int] | None) -> list[int]:
    if said is None:
        return []
    return [said] if isinstance(said, int) else list(said)


def _generation_config(checkpoint: Checkpoint) -> GenerationConfig | None:
    try:
        return GenerationConfig.from_pretrained(checkpoint.source, **checkpoint.arguments)
    except OSError as missing:
        if not (Path(checkpoint.source) / checkpoint.subfolder / _FILE).is_file():
            return None
        reason = " ".join(str(missing).split())
        raise UnsupportedModelError(
            f"{_FILE} of {checkpoint.source} cannot be read: {reason[:400]}"
        ) from missing
