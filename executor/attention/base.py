"""What every attention backend is given and must return."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from executor.attention.writing import Writer, can_copy


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
        if can_copy(key, self.keys) and can_copy(value, self.values):
            slots.writer.write(key, self.keys, value, self.values)
            return
        self.keys[slots.blocks, :, slots.offsets] = key.to(self.keys.dtype)
        self.values[slots.blocks, :, slots.offsets] = value.to(self.values.dtype)

    def gather(self, tables: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Contiguous keys and values [B, Hkv, M * block_size, D] of block tables [B, M]."""
        return _gather(self.keys, tables).to(dtype), _gather(self.values, tables).to(dtype)


def _gather(cache: Tensor, tables: Tensor) -> Tensor:
    batch, blocks = tables.shape
    _, heads, block_size, size = cache.shape
    gathered = cache[tables].transpose(1, 2)
    return gathered.reshape(batch, heads, blocks * block_size, size)


@dataclass(frozen=True)
class Slots:
    """Where the T tokens of a step lie in the cache: `places` [T, 2] int64, block and offset."""

    places: Tensor

    @property
    def blocks(self) -> Tensor:
        return self.places[:, 0]

    @property
    def offsets(self) -> Tensor:
        return self.places[:, 1]

    @cached_property
    def writer(self) -> Writer:
        """On the CPU."""
        return Writer(self.places)


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
    _derived: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def decoding(self) -> list[int]:
        """The sequences with a single token."""
        return [s for s, length in enumerate(self.query_lens) if length == 1]

    @cached_property
    def prefilling(self) -> list[int]:
        """The sequences with several."""
        return [s for s, length in enumerate(self.query_lens) if length > 1]

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What `make` gives at the first call with `key`: worked out once for all layers."""
        if key not in self._derived:
            self._derived[key] = make()
        return self._derived[key]


class AttentionBackend(Protocol):
    """Causal attention of a packed batch over the cache, which holds the new tokens already."""

    def __call__(
        self, query: Tensor, layer: LayerCache, batch: PackedBatch, options: AttentionOptions
    ) -> Tensor:
        """Query [T, Hq, Dk] to output [T, Hq, Dv]; Hq is a multiple of the cache's Hkv."""
