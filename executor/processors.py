"""What is done to logits before a token is chosen: pure functions of logits and rows.

| step | what it does to a row |
|---|---|
| `allow` | leaves only `allowed_token_ids` |
| `add_bias` | adds `logit_bias` |
| `penalize` | `repetition_penalty` of all tokens so far (CTRL, Keskar et al., 2019), then |
| | `frequency_penalty` and `presence_penalty` of the generated ones (as the public API has them) |
| `ban` | takes out what may not come before `min_tokens`, if anything else is left |

The order is vLLM's. A row for which a step has nothing to do is not touched by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from executor.history import History
from executor.request import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRow:
    """One row of logits to sample from: `position` tokens of choice `choice` exist already.

    `banned` are token ids that may not come now; `history` is of the tokens so far, where a
    penalty asks for it.
    """

    params: SamplingParams
    choice: int
    position: int
    banned: tuple[int, ...] = ()
    history: History | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the model's own logits are those to choose by."""
        return not self.banned and not self.params.changes_logits


def process(logits: Tensor, rows: Sequence[SamplingRow]) -> Tensor:
    """The logits [R, V] that tokens are chosen by.

    Args:
        logits: [R, V], any float type; changed, so give a copy.
        rows: R of them.
    """
    return reduce(lambda done, step: step(done, rows), _STEPS, logits)


def allow(logits: Tensor, rows: Sequence[SamplingRow]) -> Tensor:
    for i, row in enumerate(rows):
        if row.params.allowed_token_ids is not None:
            allowed = torch.tensor(row.params.allowed_token_ids, device=logits.device)
            kept = logits[i, allowed]
            logits[i] = -torch.inf
            logits[i, allowed] = kept
    return logits


def add_bias(logits: Tensor, rows: Sequence[SamplingRow]) -> Tensor:
    entries = [
        (i, token, bias) for i, row in enumerate(rows) for token, bias in row.params.logit_bias
    ]
    if entries:
        index, tokens, biases = zip(*entries, strict=True)
        added = torch.tensor(biases, dtype=logits.dtype, device=logits.device)
        logits[list(index), list(tokens)] += added
    return logits


def penalize(logits: Tensor, rows: Sequence[SamplingRow]) -> Tensor:
    known = [(i, row.params, row.history) for i, row in enumerate(rows) if row.history]
    if not known:
        return logits
    lengths = [len(history) for _, _, history in known]
    tokens = _tensor(np.concatenate([history.tokens() for _, _, history in known]), logits)
    counts = _tensor(np.concatenate([history.counts() for _, _, history in known]), logits)

    def spread(values: Sequence[float]) -> Tensor:
        return _tensor(np.repeat(values, lengths), logits)

    index = spread([i for i, _, _ in known])
    values = logits[index, tokens].double()
    factor = spread([params.repetition_penalty for _, params, _ in known])
    values = torch.where(values > 0, values / factor, values * factor)
    values -= counts * spread([params.frequency_penalty for _, params, _ in known])
    values -= (counts > 0) * spread([params.presence_penalty for _, params, _ in known])
    logits[index, tokens] = values.to(logits.dtype)
    return logits


def ban(logits: Tensor, rows: Sequence[SamplingRow]) -> Tensor:
    for i, row in enumerate(rows):
        if row.banned:
            banned = list(row.banned)
            before = logits[i, banned]
            logits[i, banned] = -torch.inf
            if bool(logits[i].isneginf().all()):
                logits[i, banned] = before
    return logits


_STEPS = (allow, add_bias, penalize, ban)


def _tensor(values: np.ndarray, like: Tensor) -> Tensor:
    return torch.from_numpy(values).to(like.device)
