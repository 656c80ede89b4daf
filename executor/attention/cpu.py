"""Attention on CPU by the compiled kernel: no gather, no mask, no padding, a call a layer.

What the kernel is not made for (number types, odd sizes) goes through torch.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor

from executor.attention.base import AttentionOptions, LayerCache, PackedBatch
from executor.attention.cascade import shared_prefixes
from executor.attention.checking import working_width
from executor.attention.kernel import attention_kernel, fitting_width, strip_size, unit_rows
from executor.attention.sdpa import sdpa_attention
from executor.attention.units import Cutting, Plan, plan_units
from executor.compiled.halves import STORED
from executor.compiled.team import run_together
from executor.errors import UnsupportedModelError


@dataclass(frozen=True, slots=True)
class CpuAttention:
    """See `AttentionBackend`. The kernel is for sizes that fill vectors; it computes in float32
    over a cache of any type, and answers in it."""

    cascade: bool = True
    """Whether prefixes that rows share are attended for all of them at once."""
    alone: bool = False
    """Whether each row attends by itself, so that its bits do not depend on the rows beside it;
    sizes that the kernel is not made for are then refused with UnsupportedModelError."""

    def __call__(
        self, query: Tensor, layer: LayerCache, batch: PackedBatch, options: AttentionOptions
    ) -> Tensor:
        kv_heads, block_size, key_size = layer.keys.shape[1:]
        value_size = layer.values.shape[3]
        group = query.shape[1] // kv_heads
        sizes = group, key_size, value_size, block_size
        stored = layer.keys.dtype
        if stored not in STORED or working_width(*sizes, stored, self._attend) is None:
            if self.alone:
                raise UnsupportedModelError(
                    "reproducible results are not possible: there is no attention kernel for"
                    f" {group} query heads of {key_size} numbers to a key head."
                )
            return sdpa_attention(query, layer, batch, options)
        return self._attend(query, layer, batch, options)

    def _attend(
        self, query: Tensor, layer: LayerCache, batch: PackedBatch, options: AttentionOptions
    ) -> Tensor:
        """By the kernel, which must be made for these sizes."""
        kv_heads, block_size, key_size = layer.keys.shape[1:]
        value_size = layer.values.shape[3]
        group = query.shape[1] // kv_heads
        width = fitting_width(group, key_size, value_size, block_size)
        assert width is not None, "whoever calls this has asked"
        wide = query.float()
        output = wide.new_empty(*query.shape[:2], value_size)
        kernel = attention_kernel(group, key_size, value_size, width, STORED[layer.keys.dtype])
        _call(kernel, wide, layer, self._plan(group, layer, batch, options), options, output)
        return output.to(query.dtype)

    def _plan(
        self, group: int, layer: LayerCache, batch: PackedBatch, options: AttentionOptions
    ) -> Plan:
        kv_heads, block_size, key_size = layer.keys.shape[1:]
        value_size = layer.values.shape[3]
        strip = strip_size(group, key_size, value_size, block_size)
        cutting = Cutting(
            most_rows=1 if strip is None or self.alone else unit_rows(group),
            group=group,
            strip=strip or group,
            kv_heads=kv_heads,
            threads=torch.get_num_threads(),
        )
        together = strip is not None and not self.alone
        cascade = self.cascade and options.window is None and together

        def make() -> Plan:
            return plan_units(
                batch,
                options.window,
                shared_prefixes(batch, block_size) if cascade else [],
                block_size=block_size,
                cutting=cutting,
            )

        kind = options.window, cascade, cutting
        plan: Plan = batch.once(("units", kind), make)
        return plan


def _call(
    kernel: int,
    query: Tensor,
    layer: LayerCache,
    plan: Plan,
    options: AttentionOptions,
    output: Tensor,
) -> None:
    if query.stride(2) != 1:
        query = query.contiguous()
    # Held until the kernel has run: it is given addresses only.
    sinks = None if options.sinks is None else options.sinks.detach().float().contiguous()
    given = plan.given
    given.query = query.data_ptr()
    given.query_row, given.query_head, _ = query.stride()
    given.output = output.data_ptr()
    given.keys, given.values = layer.keys.data_ptr(), layer.values.data_ptr()
    given.number_bytes = layer.keys.element_size()
    _, given.kv_heads, given.block_size, _ = layer.keys.shape
    given.sinks = 0 if sinks is None else sinks.data_ptr()
    given.scale, given.softcap = options.scale, options.softcap or 0
    plan.counter.value = 0
    run_together(kernel, ctypes.addressof(given))
