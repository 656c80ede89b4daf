"""A transformers model that turns the tokens of a step into vectors, unmodified.

| way | a step is | for models |
|---|---|---|
| packed | one row of all texts, at their own positions | whose vectors are then their own |
| by length | one batch for each length, without padding | that attend in a way of their own |

Which it is, is not looked up: the model's own answers, one text at a time through transformers'
eager attention, are compared with ours on the loaded weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers.utils import logging as transformers_logging

from executor.embedding import attention
from executor.embedding.batch import TextBatch
from executor.errors import UnsupportedModelError
from executor.passing import attending

_TOLERANCE = {torch.float32: 2e-3, torch.bfloat16: 0.15, torch.float16: 0.05}
"""Largest difference allowed, as a share of the spread of the vectors' numbers."""

_LENGTHS = (3, 41, 18, 18, 1)


class Encoder(Protocol):
    """Texts to token vectors. `position_offset` is the model's number for a first token."""

    position_offset: int

    def hidden(self, batch: TextBatch) -> Tensor:
        """Vectors [T, D] of a step's tokens."""


class PackedEncoder:
    """One row [1, T] a step."""

    def __init__(self, module: nn.Module, position_offset: int) -> None:
        self.position_offset = position_offset
        self._module = module
        self._device = next(module.parameters()).device

    @torch.inference_mode()
    def hidden(self, batch: TextBatch) -> Tensor:
        with attending(batch):
            output = self._module(
                input_ids=batch.row(self._device),
                position_ids=batch.positions(self._device, self.position_offset),
                use_cache=False,
            )
        hidden: Tensor = output.last_hidden_state[0]
        return hidden


class ByLengthEncoder:
    """A batch [B, L] for each length of the step, through the model's own attention."""

    position_offset = 0

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._device = next(module.parameters()).device

    @torch.inference_mode()
    def hidden(self, batch: TextBatch) -> Tensor:
        row = batch.row(self._device)[0]
        return torch.cat([self._run(group.split(row)).flatten(0, 1) for group in batch.groups])

    def takes(self, text: tuple[int, ...]) -> bool:
        """Whether the model computes a text of this length at all."""
        try:
            self.hidden(TextBatch.of([text]))
        except (IndexError, RuntimeError):
            return False
        return True

    def _run(self, texts: Tensor) -> Tensor:
        output = self._module(input_ids=texts, attention_mask=torch.ones_like(texts))
        hidden: Tensor = output.last_hidden_state
        return hidden


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnVectors:
    """What a model says by itself: texts, and the vectors [T, D] of all their tokens."""

    texts: tuple[tuple[int, ...], ...]
    hidden: Tensor


def own_vectors(module: Any, vocab_size: int) -> OwnVectors:
    """Ask the model one text at a time. Raises UnsupportedModelError when it has no vectors."""
    generator = torch.Generator().manual_seed(0)
    texts = tuple(
        tuple(torch.randint(vocab_size, (length,), generator=generator).tolist())
        for length in _LENGTHS
    )
    _attend_by(module, "eager")
    encoder = ByLengthEncoder(module)
    try:
        hidden = [encoder.hidden(TextBatch.of([text])) for text in texts]
    except Exception as error:
        raise UnsupportedModelError(
            f"{type(module).__name__} gives no vectors for texts: {_first_line(error)}"
        ) from error
    return OwnVectors(texts=texts, hidden=torch.cat(hidden))


def choose_encoder(module: Any, own: OwnVectors, offsets: Sequence[int]) -> Encoder:
    """The fastest way that gives the model's own vectors.

    `offsets` are where positions may begin, most likely first: of several that are right, as for
    models that know positions by their distance only, the first is taken.

    Raises:
        UnsupportedModelError: none is right, with the difference.
    """
    ways: list[tuple[str, Encoder]] = [
        (attention.NAME, PackedEncoder(module, offset)) for offset in offsets
    ]
    own_attention = "sdpa" if getattr(module, "_supports_sdpa", False) else "eager"
    ways.append((own_attention, ByLengthEncoder(module)))
    reasons = []
    for name, encoder in ways:
        _attend_by(module, name)
        reason = difference(encoder, own, module.dtype)
        if reason is None:
            return encoder
        reasons.append(reason)
    raise UnsupportedModelError(f"{type(module).__name__} cannot be batched: {reasons[0]}")


def difference(encoder: Encoder, own: OwnVectors, dtype: torch.dtype) -> str | None:
    """In what the encoder is not the model itself; None if it is."""
    try:
        ours = encoder.hidden(TextBatch.of(own.texts))
    except Exception as error:
        # A model that was not written for this may trip over it anywhere.
        return _first_line(error)
    spread = own.hidden.float().std().clamp_min(1e-6)
    apart = ((ours.float() - own.hidden.float()).abs().max() / spread).item()
    if apart <= _TOLERANCE[dtype]:
        return None
    return (
        f"its vectors in a batch differ from its own by {apart:.2g} of their spread"
        f" (allowed: {_TOLERANCE[dtype]:g})."
    )


def _attend_by(module: Any, name: str) -> None:
    """Where a model is not written for it, this changes nothing, and the comparison shows that."""
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        module.set_attn_implementation(name)
    finally:
        transformers_logging.set_verbosity(verbosity)


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
