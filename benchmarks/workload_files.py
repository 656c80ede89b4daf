"""Workloads as token ids in a file, so that every engine gets the same tokens."""

from __future__ import annotations

import json
from pathlib import Path

from batchjobs.worker.bench.generated import generate
from executor.loading import Checkpoint, load_config, load_tokenizer


def write_workload(
    name: str, model: Path, count: int, target: Path, *, most_tokens: int | None = None
) -> dict[str, int]:
    """The first `count` requests of the workload; how many tokens there are in and out.

    `most_tokens` shortens the answers.
    """
    checkpoint = Checkpoint(source=str(model))
    config = load_config(checkpoint)
    tokenizer = load_tokenizer(checkpoint, vocab_size=config.get_text_config().vocab_size)
    requests = generate(name, tokenizer, count)
    prompts = [request.prompt_token_ids for request in requests]
    lengths = [request.sampling.max_tokens for request in requests]
    if most_tokens is not None:
        lengths = [min(length, most_tokens) for length in lengths]
    target.write_text(json.dumps({"prompts": prompts, "max_tokens": lengths}))
    return {
        "requests": count,
        "prompt_tokens": sum(map(len, prompts)),
        "output_tokens": sum(lengths),
    }
