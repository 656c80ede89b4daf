"""What every attention backend is given and must return."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionOptions:
    """How one layer attends; all heads alike.

    `window` w lets a query see itself and the w - 1 tokens before it. `softcap` c replaces a
    score s by c * tanh(s / c). `sinks` [Hq] are scores that take part in the softmax and carry
    no value (gpt-oss).
    """

    scale: float
    window: int | None = None
    softcap: float | None = None
    sinks: Tensor | None = None


@dataclass(frozen=True, slots=True)
class LayerCache:
    """One layer's keys [N, Hkv, block_size, Dk] and values [N, Hkv, block_size, Dv]."""

    keys: Tensor
    values: Tensor

    def write(self, key: Tensor, value: Tensor, slots: Slots) -> None:
        """Store new keys [T, Hkv, Dk] and values [T, Hkv, Dv] at their slots."""
        self.keys[slots.blocks, :, slots.offsets] = key
        self.values[slots.blocks, :, slots.offsets] = value

    def gather(self, tables: Tensor) -> tuple[Tensor, Tensor]:
        """Contiguous keys and values [B, Hkv, M * block_size, D] of block tables [B, M]."""
        return _gather(self.keys, tables), _gather(self.values, tables)


def _gather(cache: Tensor, tables: Tensor) -> Tensor:
    batch, blocks = tables.shape
    _, heads, block_size, size = cache.shape
    gathered = cache[tables].transpose(1, 2)
    return gathered.reshape(batch, heads, blocks * block_size, size)


@dataclass(frozen=True, slots=True)
class Slots:
    """Where the T tokens of a step lie in the cache: block and offset, each [T] int64."""

    blocks: Tensor
    offsets: Tensor


@dataclass(frozen=True, kw_only=True)
class PackedBatch:
    """One step's tokens of S sequences in a row, T in all.

    Sequence s has tokens [query_starts[s], query_starts[s] + query_lens[s]) of the row, which
    are the last of its context_lens[s] tokens; block_tables [S, M] int64 is padded with zeros.
    """

    query_starts: list[int]
    query_lens: list[int]
    context_lens: list[int]
    block_tables: Tensor
    slots: Slots

    @cached_property
    def decoding(self) -> list[int]:
        """The sequences with a single token."""
        return [s for s, length in enumerate(self.query_lens) if length == 1]

    @cached_property
    def prefilling(self) -> list[int]:
        """The sequences with several."""
        return [s for s, length in enumerate(self.query_lens) if length > 1]

    @cached_property
    def decoding_rows(self) -> Tensor:
        """Where the tokens of `decoding` are in the row: [D] int64."""
        starts = [self.query_starts[s] for s in self.decoding]
        return torch.tensor(starts, device=self.block_tables.device)

    @cached_property
    def decoding_lens(self) -> Tensor:
        """Context lengths of `decoding`: [D] int64."""
        lengths = [self.context_lens[s] for s in self.decoding]
        return torch.tensor(lengths, device=self.block_tables.device)

    @cached_property
    def decoding_tables(self) -> Tensor:
        return self.block_tables[torch.tensor(self.decoding, device=self.block_tables.device)]


class AttentionBackend(Protocol):
    """Causal attention of a packed batch over the cache, which holds the new tokens already."""

    def __call__(
        self, query: Tensor, layer: LayerCache, batch: PackedBatch, options: AttentionOptions
    ) -> Tensor:
        """Query [T, Hq, Dk] to output [T, Hq, Dv]; Hq is a multiple of the cache's Hkv."""
