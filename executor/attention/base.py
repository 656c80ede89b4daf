"""What every attention backend is given and must return."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from executor.attention.kernel import write_rows


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
        for cache, rows in ((self.keys, key), (self.values, value)):
            if cache.device.type == "cpu" and rows.stride(2) == 1 and rows.dtype == cache.dtype:
                _copy(cache, rows, slots)
            else:
                cache[slots.blocks, :, slots.offsets] = rows

    def gather(self, tables: Tensor) -> tuple[Tensor, Tensor]:
        """Contiguous keys and values [B, Hkv, M * block_size, D] of block tables [B, M]."""
        return _gather(self.keys, tables), _gather(self.values, tables)


def _copy(cache: Tensor, rows: Tensor, slots: Slots) -> None:
    """What indexed assignment does, at a fraction of its cost for few rows."""
    _, kv_heads, block_size, size = cache.shape
    row_stride, head_stride, _ = rows.stride()
    item = cache.element_size()
    write_rows(
        rows.data_ptr(), row_stride * item, head_stride * item, cache.data_ptr(),
        slots.places_array, kv_heads, block_size, size * item,
    )  # fmt: skip


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
    def places_array(self) -> NDArray[np.int64]:
        """On the CPU, without a copy."""
        array: NDArray[np.int64] = self.places.numpy()
        return array


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
