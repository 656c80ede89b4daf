"""Prove on the loaded weights that packing leaves a model right.

Whether a family may be packed is not looked up in a list: the model's own answers, one sequence
at a time through transformers' eager attention, are compared with ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from executor.attention.base import AttentionBackend
from executor.errors import UnsupportedModelError
from executor.model import LayerShape, PackedModel, PagedCache
from executor.request import Request
from executor.scenarios import own_attention
from executor.scheduler import Scheduler
from executor.sequence import Group, Sequence
from executor.settings import Limits

_TOLERANCE = {torch.float32: 2e-3, torch.bfloat16: 0.15, torch.float16: 0.05}
"""Largest difference allowed, as a share of the spread of the logits."""

_LENGTHS = (3, 41, 18)
"""Prompts of the check; the step budget below cuts the second in three."""
_BUDGET = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnAnswers:
    """What a model says by itself: prompts, and its logits [P, V] after each."""

    prompts: list[list[int]]
    logits: Tensor


def own_answers(module: Any, vocab_size: int) -> OwnAnswers:
    """Ask the model one prompt at a time, through transformers' eager attention."""
    generator = torch.Generator().manual_seed(0)
    prompts = [
        torch.randint(vocab_size, (length,), generator=generator).tolist() for length in _LENGTHS
    ]
    return OwnAnswers(prompts=prompts, logits=_eager_logits(module, prompts))


def check_packing(
    module: Any, layers: dict[int, LayerShape], backend: AttentionBackend, own: OwnAnswers
) -> None:
    """Compare packed, chunked and cached logits with the model's own.

    Raises:
        UnsupportedModelError: they differ, with the difference.
    """
    difference = logit_error(module, layers, backend, own)
    tolerance = _TOLERANCE[module.dtype]
    if not difference <= tolerance:
        raise UnsupportedModelError(
            f"{type(module).__name__} cannot be packed: its logits in a packed batch differ from "
            f"its own by {difference:.2g} of their spread (allowed: {tolerance:g})."
        )


def logit_error(
    module: Any, layers: dict[int, LayerShape], backend: AttentionBackend, own: OwnAnswers
) -> float:
    """The largest difference of packed logits from the model's own, as a share of their spread."""
    ours = _packed_logits(module, layers, backend, own.prompts)
    spread = own.logits.std().clamp_min(1e-6)
    return float((ours - own.logits).abs().max() / spread)


def _packed_logits(
    module: Any, layers: dict[int, LayerShape], backend: AttentionBackend, prompts: list[list[int]]
) -> Tensor:
    """Logits after each prompt [P, V]: chunks of all but its last token, then a decode step."""
    limits = Limits(
        max_num_seqs=len(prompts),
        max_num_batched_tokens=_BUDGET,
        max_model_len=max(_LENGTHS),
        num_blocks=8,
        block_size=16,
    )
    cache = PagedCache(layers, limits, dtype=module.dtype, device=module.device)
    model = PackedModel(module, cache, backend)
    scheduler = Scheduler(limits)
    for index, prompt in enumerate(prompts):
        request = Request(id="check", prompt_token_ids=tuple(prompt[:-1]))
        scheduler.add(Sequence(Group(request), index, prompt[:-1], watcher=None))
    logits: dict[int, Tensor] = {}
    while scheduler.has_work:
        spans = scheduler.schedule()
        ready = [span.sequence for span in spans if span.catches_up]
        for sequence, row in zip(ready, model.forward(spans), strict=True):
            if sequence.num_generated:
                logits[sequence.index] = row.float()
                scheduler.remove(sequence)
            else:
                sequence.tokens.append(prompts[sequence.index][-1])
    return torch.stack([logits[index] for index in range(len(prompts))])


@torch.inference_mode()
def _eager_logits(module: Any, prompts: list[list[int]]) -> Tensor:
    with own_attention(module):
        rows = [
            module(input_ids=torch.tensor([prompt], device=module.device), use_cache=False)
            .logits[0, -1]
            .float()
            for prompt in prompts
        ]
    return torch.stack(rows)
