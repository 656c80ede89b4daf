"""How a checkpoint says that it is sampled best: its `generation_config.json`."""

from __future__ import annotations

from transformers import GenerationConfig

from executor.loading import Checkpoint

SAMPLING_DEFAULTS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""What of it is a sampling parameter, as vLLM reads it too."""


def own_sampling(checkpoint: Checkpoint) -> dict[str, float]:
    """The sampling parameters that the checkpoint names, by vLLM's names; none without a file."""
    try:
        config = GenerationConfig.from_pretrained(checkpoint.source, **checkpoint.arguments)
    except OSError:
        return {}
    named = config.to_diff_dict()
    return {name: named[name] for name in SAMPLING_DEFAULTS if named.get(name) is not None}
