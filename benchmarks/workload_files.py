"""Workloads as token ids in a file, so that every engine gets the same tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from batchjobs.worker.bench.generated import generate
from executor.loading import Checkpoint, load_config, load_tokenizer

NATURAL_MOST_TOKENS = 256
"""Of an answer that may end by itself, if not said otherwise."""


def write_workload(
    name: str,
    model: Path,
    count: int,
    target: Path,
    *,
    most_tokens: int | None = None,
    natural: bool = False,
) -> dict[str, Any]:
    """The first `count` requests of the workload; how many tokens there are in and, at most, out.

    `most_tokens` shortens the answers. `natural` ones end at an end-of-sequence token, and all
    have the same limit, which says nothing of their lengths.
    """
    checkpoint = Checkpoint(source=str(model))
    config = load_config(checkpoint)
    tokenizer = load_tokenizer(checkpoint, vocab_size=config.get_text_config().vocab_size)
    requests = generate(name, tokenizer, count)
    prompts = [request.prompt_token_ids for request in requests]
    lengths = [request.sampling.max_tokens for request in requests]
    if natural:
        lengths = [most_tokens or NATURAL_MOST_TOKENS] * count
    elif most_tokens is not None:
        lengths = [min(length, most_tokens) for length in lengths]
    target.write_text(json.dumps({"prompts": prompts, "max_tokens": lengths, "natural": natural}))
    return {
        "requests": count,
        "prompt_tokens": sum(map(len, prompts)),
        "output_tokens": sum(lengths),
        "natural": natural,
    }
