"""A model's answers as transformers gives them."""

from __future__ import annotations

from typing import Any

import torch


def generate(
    reference: Any, prompt: tuple[int, ...], *, max_new_tokens: int, **options: Any
) -> list[int]:
    """What `generate` appends to the prompt when it is greedy, end of sequence included."""
    tokens: list[int] = reference.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        do_sample=False,
        max_new_tokens=max_new_tokens,
        **options,
    )[0, len(prompt) :].tolist()
    return tokens
