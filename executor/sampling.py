"""Logits to tokens: pure functions of the logits and of (seed, choice, position).

The order of filters is vLLM's: temperature, min_p, top_k, top_p.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from executor.request import SamplingParams, TokenLogprob


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRow:
    """One row of logits to sample from: `position` tokens of choice `choice` exist already.

    `banned` are token ids that may not come now.
    """

    params: SamplingParams
    choice: int
    position: int
    banned: tuple[int, ...] = ()


def sample(logits: Tensor, rows: Sequence[SamplingRow]) -> list[int]:
    """One token id per row.

    Args:
        logits: [R, V], any float type; not changed.
        rows: R of them.
    """
    logits = _ban(logits.float(), rows)
    tokens = logits.argmax(dim=-1)
    random = [i for i, row in enumerate(rows) if row.params.temperature > 0]
    if random:
        chosen = [rows[i] for i in random]
        index = torch.tensor(random, device=logits.device)
        probabilities = filtered_probabilities(logits[index], [row.params for row in chosen])
        uniforms = [
            uniform(row.params.seed, choice=row.choice, position=row.position) for row in chosen
        ]
        tokens[index] = invert(probabilities, uniforms)
    return [int(token) for token in tokens.tolist()]


def filtered_probabilities(logits: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """Probabilities [R, V] after temperature, min_p, top_k and top_p; each row sums to 1.

    Args:
        logits: [R, V] float32.
        params: R of them, each with a temperature above 0.
    """
    temperature = _column([p.temperature for p in params], logits)
    # Subtracting the maximum first keeps a tiny temperature from overflowing.
    scaled = (logits - logits.amax(dim=-1, keepdim=True)) / temperature
    probabilities = scaled.softmax(dim=-1)
    if any(p.min_p > 0 for p in params):
        floor = _column([p.min_p for p in params], logits)
        likeliest = probabilities.amax(dim=-1, keepdim=True)
        probabilities = probabilities.where(probabilities >= floor * likeliest, 0)
    if any(p.top_k > 0 or p.top_p < 1 for p in params):
        probabilities = _keep_top(probabilities, params)
    return probabilities / probabilities.sum(dim=-1, keepdim=True)


def _keep_top(probabilities: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    vocabulary = probabilities.shape[-1]
    ranked, order = probabilities.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(vocabulary, device=probabilities.device)
    top_k = torch.tensor([p.top_k or vocabulary for p in params], device=probabilities.device)
    ranked = ranked.where(rank < top_k[:, None], 0)
    ranked = ranked / ranked.sum(dim=-1, keepdim=True)
    # A token stays while what is likelier than it does not yet fill top_p: the first always does.
    before = ranked.double().cumsum(dim=-1) - ranked
    top_p = _column([p.top_p for p in params], before)
    ranked = ranked.where(before < top_p, 0)
    return torch.zeros_like(probabilities).scatter(-1, order, ranked)


def invert(probabilities: Tensor, uniforms: Sequence[float]) -> Tensor:
    """Token ids [R] at which the cumulative distribution passes the row's uniform number.

    In token order and in double precision, so that rounding in a neighbour's company moves a
    border by 1e-7 or so, and only one draw in millions with it.
    """
    cumulative = probabilities.double().cumsum(dim=-1)
    target = _column(uniforms, cumulative) * cumulative[:, -1:]
    return torch.searchsorted(cumulative, target, right=True).squeeze(-1)


def uniform(seed: int, *, choice: int, position: int) -> float:
    """A number in [0, 1) that depends on nothing but its arguments.

    Philox (Salmon et al., SC'11) with key (seed, choice) at counter `position`.
    """
    key = np.array([seed % 2**64, choice], dtype=np.uint64)
    counter = np.array([position, 0, 0, 0], dtype=np.uint64)
    return float(np.random.Generator(np.random.Philox(key=key, counter=counter)).random())


def token_logprobs(logits: Tensor, tokens: Sequence[int], top: Sequence[int]) -> list[TokenLogprob]:
    """Log-probabilities of `tokens`, each with its `top` likeliest alternatives.

    Args:
        logits: [R, V] as the model gave them, before temperature and filters.
    """
    logprobs = logits.double().log_softmax(dim=-1)
    chosen = logprobs.gather(-1, torch.tensor(list(tokens), device=logits.device)[:, None])
    values, ids = logprobs.topk(max(1, *top), dim=-1)
    return [
        TokenLogprob(
            token_id=token,
            logprob=round(own[0], 6),
            top=tuple((i, round(v, 6)) for i, v in zip(row_ids[:count], row[:count], strict=True)),
        )
        for token, own, row_ids, row, count in zip(
            tokens, chosen.tolist(), ids.tolist(), values.tolist(), top, strict=True
        )
    ]


def _ban(logits: Tensor, rows: Sequence[SamplingRow]) -> Tensor:
    if not any(row.banned for row in rows):
        return logits
    logits = logits.clone()
    for i, row in enumerate(rows):
        logits[i, list(row.banned)] = -torch.inf
    return logits


def _column(values: Sequence[float], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None]
