"""An unmodified transformers model computing packed steps over our paged cache."""

from __future__ import annotations

import weakref
from collections.abc import Sequence as Many
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from executor.attention.base import (
    AttentionBackend,
    AttentionOptions,
    LayerCache,
    PackedBatch,
    Slots,
)
from executor.head import Head
from executor.memory import Taking, prefer_huge_pages, take_ahead
from executor.passing import attending
from executor.settings import Limits
from executor.span import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """What one attention layer caches for a token: Hkv keys of Dk and values of Dv numbers."""

    kv_heads: int
    key_size: int
    value_size: int

    @property
    def numbers(self) -> int:
        return self.kv_heads * (self.key_size + self.value_size)


_READY_BYTES = 2 << 30
"""Of a cache, that are made ready at start at most."""


class PagedCache:
    """Keys and values of all layers, by block; which block is whose the pool knows."""

    def __init__(
        self, layers: dict[int, LayerShape], limits: Limits, *, dtype: torch.dtype, device: Any
    ) -> None:
        self.block_size = limits.block_size
        self.num_blocks = limits.num_blocks
        self._taking: Taking | None = None
        self._ahead = 0
        self.layers = {
            index: LayerCache(
                *(
                    torch.empty(
                        (limits.num_blocks, shape.kv_heads, limits.block_size, size),
                        dtype=dtype,
                        device=device,
                    )
                    for size in (shape.key_size, shape.value_size)
                )
            )
            for index, shape in layers.items()
        }
        for tensor in self.tensors:
            prefer_huge_pages(tensor)

    @property
    def tensors(self) -> list[Tensor]:
        return [t for layer in self.layers.values() for t in (layer.keys, layer.values)]

    @property
    def taken(self) -> int:
        """Bytes for which memory was got ahead."""
        return 0 if self._taking is None else self._taking.taken

    def take_ahead(self, blocks: int) -> None:
        """Get memory for the first so many blocks, which are used first."""
        if self._taking is not None:
            self._taking.stop()
        block_bytes = sum(tensor.nbytes for tensor in self.tensors) // self.num_blocks
        self._ahead = min(blocks, self.num_blocks, _READY_BYTES // block_bytes)
        self._taking = take_ahead([tensor[: self._ahead] for tensor in self.tensors])
        if self._taking is not None:
            weakref.finalize(self, self._taking.stop)

    def cut(self, num_blocks: int) -> bool:
        """Be no larger than this; whether it could be: there are so many blocks, and memory was
        got ahead for no more."""
        if not self._ahead <= num_blocks <= self.num_blocks:
            return False
        self.num_blocks = num_blocks
        self.layers = {
            index: LayerCache(layer.keys[:num_blocks], layer.values[:num_blocks])
            for index, layer in self.layers.items()
        }
        return True

    def copy_blocks(self, copies: Many[tuple[int, int]]) -> None:
        """Copy blocks (from, to) in every layer; all are read before any is written."""
        sources, targets = torch.tensor(copies).unbind(dim=1)
        for tensor in self.tensors:
            tensor[targets] = tensor[sources]


@dataclass(frozen=True, slots=True)
class PagedContext:
    """Writes a step's keys and values to the cache and attends over it (`hook`)."""

    cache: PagedCache
    batch: PackedBatch
    backend: AttentionBackend
    kept: Tensor | None

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions
    ) -> Tensor:
        cache = self.cache.layers[layer]
        cache.write(key, value, self.batch.slots)
        return self.backend(query, cache, self.batch, options)


class PackedModel:
    """Computes steps: all spans in one row [1, T], each at its own positions."""

    def __init__(self, module: nn.Module, cache: PagedCache, backend: AttentionBackend) -> None:
        self._module = module
        self._cache = cache
        self._backend = backend
        self._device = next(module.parameters()).device
        self._head = Head(module)

    @torch.inference_mode()
    def copy_blocks(self, copies: Many[tuple[int, int]]) -> None:
        """Copy cache blocks (from, to); all are read before any is written."""
        self._cache.copy_blocks(copies)

    @torch.inference_mode()
    def forward(self, spans: Many[Span]) -> Tensor:
        """Logits [R, V] of the last `rows` positions of each span, in order."""
        batch = pack(spans, self._cache.block_size, self._device)
        tokens = [token for span in spans for token in span.tokens]
        positions = [position for span in spans for position in range(span.start, span.end)]
        last_rows = [
            row
            for start, span in zip(batch.query_starts, spans, strict=True)
            for row in range(start + span.positions - span.rows, start + span.positions)
        ]
        return run_packed(
            self._module,
            self._row(tokens),
            self._row(positions),
            self._rows(last_rows),
            PagedContext(self._cache, batch, self._backend, self._kept(spans)),
        )

    def _kept(self, spans: Many[Span]) -> Tensor | None:
        """The rows whose logits are asked for, now or at `logits_at`; None: all of them."""
        kept: list[int] = []
        first = 0
        for span in spans:
            end = first + span.positions
            scored = span.sequence.group.scores_prompt
            kept += range(first if scored else end - span.rows, end)
            first = end
        return None if len(kept) == first else self._rows(kept)

    def _rows(self, rows: list[int]) -> Tensor:
        return torch.tensor(rows, dtype=torch.int64, device=self._device)

    @torch.inference_mode()
    def logits_at(self, rows: Many[int]) -> Tensor:
        """Logits [R, V] at these rows of the last step's packed row: sampled, or of prompts that
        are scored."""
        return self._head.logits(self._rows(list(rows)))

    def _row(self, values: list[int]) -> Tensor:
        return torch.tensor(values, device=self._device)[None]


def run_packed(
    module: nn.Module, tokens: Tensor, positions: Tensor, rows: Tensor, context: object
) -> Tensor:
    """One forward pass over a packed row [1, T]; logits [R, V] of the given rows only."""
    with attending(context):
        output = module(
            input_ids=tokens, position_ids=positions, use_cache=False, logits_to_keep=rows
        )
    logits: Tensor = output.logits[0]
    return logits


def pack(spans: Many[Span], block_size: int, device: torch.device) -> PackedBatch:
    """The layout of a step's row and where its tokens lie in the cache."""
    query_starts, total = [], 0
    for span in spans:
        query_starts.append(total)
        total += span.positions
    width = max(len(span.sequence.block_table) for span in spans)
    tables = [
        span.sequence.block_table + [0] * (width - len(span.sequence.block_table)) for span in spans
    ]
    places = [
        (span.sequence.block_table[position // block_size], position % block_size)
        for span in spans
        for position in range(span.start, span.end)
    ]
    return PackedBatch(
        query_starts=query_starts,
        query_lens=[span.positions for span in spans],
        context_lens=[span.end for span in spans],
        block_tables=torch.tensor(tables, device=device),
        slots=Slots(torch.tensor(places, device=device)),
    )
