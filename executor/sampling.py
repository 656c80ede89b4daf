"""Logits to tokens: pure functions of the logits and of (seed, choice, position).

The order is vLLM's: what `processors` do, then temperature, min_p, top_k, top_p.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from executor.draws import uniforms
from executor.processors import SamplingRow, process
from executor.request import SamplingParams, TokenLogprob

_FIRST_RANKS, _MORE_RANKS = 64, 16
"""Tokens of a row that are ranked at first, and how many times more before all of them are."""


def sample(logits: Tensor, rows: Sequence[SamplingRow]) -> list[int]:
    """One token id per row.

    Args:
        logits: [R, V], any float type; not changed.
        rows: R of them.
    """
    tokens = logits.argmax(dim=-1)
    own = _Processed(logits, rows)
    if own.index:
        tokens[own.index] = own.logits.argmax(dim=-1)
    random = [i for i, row in enumerate(rows) if row.params.temperature > 0]
    if random:
        chosen = [rows[i] for i in random]
        probabilities = filtered_probabilities(
            own.of(random).float(), [row.params for row in chosen]
        )
        draws = uniforms(
            [row.params.seed for row in chosen],
            [row.choice for row in chosen],
            [row.position for row in chosen],
        )
        tokens[random] = invert(probabilities, draws.tolist())
    return [int(token) for token in tokens.tolist()]


class _Processed:
    """Rows of logits, those with something to process being copies; others cost nothing."""

    def __init__(self, logits: Tensor, rows: Sequence[SamplingRow]) -> None:
        self.index = [i for i, row in enumerate(rows) if not row.is_plain]
        self.logits = logits[:0]
        self._all = logits
        if self.index:
            self.logits = process(logits[self.index], [rows[i] for i in self.index])

    def of(self, index: list[int]) -> Tensor:
        """The rows of `index`, which is ascending; not to be changed."""
        if not self.index and len(index) == len(self._all):
            return self._all
        rows = self._all[index]
        places = {i: place for place, i in enumerate(self.index)}
        found = [(at, places[i]) for at, i in enumerate(index) if i in places]
        if found:
            targets, sources = zip(*found, strict=True)
            rows[list(targets)] = self.logits[list(sources)]
        return rows


def filtered_probabilities(logits: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """Probabilities [R, V] after temperature, min_p, top_k and top_p; each row sums to 1. Where
    nothing is possible, everything is: whoever has left nothing finds out by the token.

    Args:
        logits: [R, V] float32.
        params: R of them, each with a temperature above 0.
    """
    temperature = _column([p.temperature for p in params], logits)
    # Subtracting the maximum first keeps a tiny temperature from overflowing.
    highest = logits.amax(dim=-1, keepdim=True)
    probabilities = ((logits - highest) / temperature).softmax(dim=-1)
    if bool((impossible := highest.isneginf()).any()):
        probabilities = probabilities.where(~impossible, 1 / logits.shape[-1])
    if any(p.min_p > 0 for p in params):
        floor = _column([p.min_p for p in params], logits)
        likeliest = probabilities.amax(dim=-1, keepdim=True)
        probabilities = probabilities.where(probabilities >= floor * likeliest, 0)
    limited = [i for i, p in enumerate(params) if p.top_k > 0 or p.top_p < 1]
    if limited:
        index = torch.tensor(limited, device=logits.device)
        probabilities[index] = _keep_top(probabilities[index], [params[i] for i in limited])
    return probabilities / probabilities.sum(dim=-1, keepdim=True)


def _keep_top(probabilities: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """Zero for all but each row's `top_k` likeliest tokens, and of these the fewest that fill
    `top_p`. Ranks no more of a row than that takes, so that a vocabulary is hardly ever sorted.
    """
    device, vocabulary = probabilities.device, probabilities.shape[-1]
    top_k = torch.tensor([min(p.top_k or vocabulary, vocabulary) for p in params], device=device)
    limits = _Limits(
        top_k=top_k[:, None],
        top_p=_column([p.top_p for p in params], probabilities.double()),
        total=_row_sums(probabilities.double()),
    )
    kept = torch.zeros_like(probabilities)
    todo = torch.arange(len(params), device=device)
    width = max(_FIRST_RANKS, *(p.top_k for p in params))
    while len(todo):
        width = min(width, vocabulary)
        rows, own = probabilities[todo], limits.rows(todo)
        ranked = rows.topk(width, dim=-1).values
        count = _count_kept(ranked, own)
        settled = ((count < width) | (own.top_k <= width)).squeeze(-1)
        done = settled.nonzero().squeeze(-1)
        lowest = ranked.gather(-1, count - 1)
        kept[todo[done]] = _likeliest(rows[done], lowest[done], count[done])
        todo = todo[~settled]
        width = width * _MORE_RANKS if width == _FIRST_RANKS else vocabulary
    return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    """`top_k` (the vocabulary where there is none), `top_p`, and the sum of the row, [R, 1]."""

    top_k: Tensor
    top_p: Tensor
    total: Tensor

    def rows(self, index: Tensor) -> _Limits:
        return _Limits(top_k=self.top_k[index], top_p=self.top_p[index], total=self.total[index])


def _count_kept(ranked: Tensor, limits: _Limits) -> Tensor:
    """How many of the likeliest [R, K] stay, [R, 1]: at least one, all K if there may be more."""
    width = ranked.shape[-1]
    rank = torch.arange(width, device=ranked.device)
    ranked = ranked.double().where(rank < limits.top_k, 0)
    cumulative = ranked.cumsum(dim=-1)
    total = limits.total.where(limits.top_k > width, cumulative[:, -1:])
    # A token stays while what is likelier than it does not yet fill top_p: the first always does.
    stays = (cumulative - ranked < limits.top_p * total) & (rank < limits.top_k)
    return stays.sum(dim=-1, keepdim=True)


def _likeliest(rows: Tensor, lowest: Tensor, count: Tensor) -> Tensor:
    """Only the `count` likeliest of each row, `lowest` being the least likely of these; of equals
    those with the lowest token ids, so that it does not depend on how they were ranked."""
    above, equal = rows > lowest, rows == lowest
    room = count - above.sum(dim=-1, keepdim=True)
    if bool((equal.sum(dim=-1, keepdim=True) > room).any()):
        equal &= equal.cumsum(dim=-1) <= room
    return rows.where(above | equal, 0)


def invert(probabilities: Tensor, uniforms: Sequence[float]) -> Tensor:
    """Token ids [R] at which the cumulative distribution passes the row's uniform number.

    In token order and in double precision, so that rounding in a neighbour's company moves a
    border by 1e-7 or so, and only one draw in millions with it.
    """
    cumulative = probabilities.double().cumsum(dim=-1)
    target = _column(uniforms, cumulative) * cumulative[:, -1:]
    return torch.searchsorted(cumulative, target, right=True).squeeze(-1)


def token_logprobs(logits: Tensor, tokens: Sequence[int], top: Sequence[int]) -> list[TokenLogprob]:
    """Log-probabilities of `tokens`, each with its `top` likeliest alternatives.

    Args:
        logits: [R, V] as the model gave them, before temperature and filters; not changed.
    """
    shifted = logits.float() - logits.float().amax(dim=-1, keepdim=True)
    # Only what is asked for is made a log-probability.
    sums: list[float] = _row_sums(_exponentials(shifted)).squeeze(-1).tolist()
    chosen = shifted.gather(-1, torch.tensor(list(tokens), device=logits.device)[:, None])
    # Sums of floats are a good deal faster than those of truth values, and exact up to 2**24.
    ranks = (shifted > chosen).float().sum(dim=-1).int() + 1
    return [
        TokenLogprob(
            token_id=token,
            logprob=own - math.log(total),
            rank=rank,
            top=tuple((token_id, value - math.log(total)) for token_id, value in pairs),
        )
        for token, own, rank, pairs, total in zip(
            tokens,
            chosen.squeeze(-1).tolist(),
            ranks.tolist(),
            _greatest(shifted, top),
            sums,
            strict=True,
        )
    ]


def _greatest(rows: Tensor, counts: Sequence[int]) -> list[list[tuple[int, float]]]:
    """Of each row [R, V] the places and values of its so many greatest numbers.

    Rows are asked for no more than their own count: which of two equal numbers comes first
    depends on it.
    """
    found: list[list[tuple[int, float]]] = [[] for _ in counts]
    for count in set(counts) - {0}:
        index = [i for i, each in enumerate(counts) if each == count]
        asked = rows if len(index) == len(rows) else rows[index]
        values, places = asked.topk(count, dim=-1)
        for i, row, row_places in zip(index, values.tolist(), places.tolist(), strict=True):
            found[i] = list(zip(row_places, row, strict=True))
    return found


def _exponentials(rows: Tensor) -> Tensor:
    """e to the power of each number of rows [R, V], a row at a time.

    torch computes numbers that do not fill a vector by another function, and which numbers these
    are depends on R where they are computed together.
    """
    powers = torch.empty_like(rows)
    for row, target in zip(rows, powers, strict=True):
        torch.exp(row, out=target)
    return powers


def _row_sums(rows: Tensor) -> Tensor:
    """Sums [R, 1] of rows [R, V], each in the same order whatever R is.

    torch divides the sum of a single row between threads, and sums of several not.
    """
    several = rows.expand(2, -1) if len(rows) == 1 else rows
    return several.sum(dim=-1, keepdim=True)[: len(rows)]


def _column(values: Sequence[float], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None]
