"""Shared prefixes: found in block tables, attended once, equal to attention row by row."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from executor.attention import cascade, cpu
from executor.attention.base import AttentionOptions, LayerCache, PackedBatch, Slots
from executor.attention.cascade import SharedPrefix, shared_prefixes
from executor.attention.cpu import CpuAttention
from executor.attention.reference import reference_attention

BLOCK, KV_HEADS, GROUP, SIZE = 16, 2, 3, 32
SYSTEM = list(range(9))
OTHER = list(range(20, 29))


@pytest.fixture(autouse=True)
def _small_groups_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cascade, "MIN_ROWS", 8)
    monkeypatch.setattr(cascade, "MIN_TOKENS", 2 * BLOCK)


def batch_of(sequences: list[tuple[list[int], int, int]]) -> PackedBatch:
    """Sequences given by (blocks, context, tokens in this step)."""
    width = max(len(blocks) for blocks, _, _ in sequences)
    counts = [count for _, _, count in sequences]
    return PackedBatch(
        query_starts=[sum(counts[:i]) for i in range(len(counts))],
        query_lens=counts,
        context_lens=[context for _, context, _ in sequences],
        block_tables=torch.tensor(
            [blocks + [0] * (width - len(blocks)) for blocks, _, _ in sequences]
        ),
        slots=Slots(torch.zeros(sum(counts), 2, dtype=torch.int64)),
    )


def sharing(blocks: list[int], first_own: int, number: int) -> list[tuple[list[int], int, int]]:
    return [([*blocks, first_own + i], len(blocks) * BLOCK + 3 + i % 13, 1) for i in range(number)]


def tensors(batch: PackedBatch) -> tuple[Tensor, LayerCache]:
    generator = torch.Generator().manual_seed(0)
    count = int(batch.block_tables.max()) + 1
    shape = (count, KV_HEADS, BLOCK, SIZE)
    layer = LayerCache(
        torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)
    )
    rows = sum(batch.query_lens)
    return torch.randn(rows, KV_HEADS * GROUP, SIZE, generator=generator), layer


BATCHES = {
    "all share": sharing(SYSTEM, 40, 10),
    "some share": [([70], 5, 1), *sharing(SYSTEM, 40, 8), ([71, 72], 20, 1)],
    "two groups": [*sharing(SYSTEM, 40, 8), *sharing(OTHER, 60, 9)],
    "with a short prompt": [*sharing(SYSTEM, 40, 6), ([*SYSTEM, 80], 9 * BLOCK + 7, 5)],
    "beside a long prompt": [*sharing(SYSTEM, 40, 8), ([*SYSTEM, 80, 81], 9 * BLOCK + 21, 20)],
    "more than a unit takes": sharing(SYSTEM, 40, 43),
    "short of a tile": sharing(SYSTEM[:2], 40, 12),
    "long own ends": [
        ([*SYSTEM, *range(40 + 12 * i, 52 + 12 * i)], 9 * BLOCK + 1 + 15 * i, 1) for i in range(13)
    ],
    "prefix ends with the computed": [*sharing(SYSTEM, 40, 8), ([*SYSTEM, 80], 9 * BLOCK + 1, 1)],
}


@pytest.fixture
def kernel_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with each call of the kernel."""
    calls: list[int] = []

    def counted(kernel: int, arguments: int) -> None:
        calls.append(kernel)
        original(kernel, arguments)

    original = cpu.run_together
    batch = batch_of(BATCHES["short of a tile"])
    query, layer = tensors(batch)
    CpuAttention()(query, layer, batch, AttentionOptions(scale=1))  # the first call checks it
    monkeypatch.setattr(cpu, "run_together", counted)
    return calls


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize(
    "given", [{}, {"sinks": torch.linspace(-2, 2, KV_HEADS * GROUP)}, {"softcap": 3.0}], ids=str
)
def test_cascade_equals_reference(
    name: str, given: dict[str, Any], kernel_calls: list[int]
) -> None:
    batch = batch_of(BATCHES[name])
    query, layer = tensors(batch)
    options = AttentionOptions(scale=0.2, **given)
    expected = reference_attention(query, layer, batch, options)
    torch.testing.assert_close(CpuAttention()(query, layer, batch, options), expected)
    assert len(kernel_calls) == 1
    own = batch_of(BATCHES[name])
    torch.testing.assert_close(CpuAttention(cascade=False)(query, layer, own, options), expected)
    assert len(kernel_calls) == 2


def test_windows_are_attended_row_by_row(kernel_calls: list[int]) -> None:
    batch = batch_of(BATCHES["all share"])
    query, layer = tensors(batch)
    options = AttentionOptions(scale=0.2, window=20)
    expected = reference_attention(query, layer, batch, options)
    torch.testing.assert_close(CpuAttention()(query, layer, batch, options), expected)
    assert len(kernel_calls) == 1


def test_groups_are_cut_where_most_reads_are_saved() -> None:
    template = [*SYSTEM[:1], *OTHER]
    sequences = [*sharing(SYSTEM, 40, 8), *sharing(template, 60, 9)]
    assert shared_prefixes(batch_of(sequences), BLOCK) == [
        SharedPrefix(sequences=tuple(range(8)), blocks=tuple(SYSTEM)),
        SharedPrefix(sequences=tuple(range(8, 17)), blocks=tuple(template)),
    ]


@pytest.mark.parametrize(
    "sequences",
    [
        sharing(SYSTEM, 40, 7),
        sharing(SYSTEM[:1], 40, 20),
        [([*SYSTEM], 9 * BLOCK, 9 * BLOCK)] * 8,
        [([i], 10, 1) for i in range(20)],
    ],
    ids=["few rows", "short prefix", "not computed yet", "nothing shared"],
)
def test_what_does_not_pay_is_not_grouped(sequences: list[tuple[list[int], int, int]]) -> None:
    assert shared_prefixes(batch_of(sequences), BLOCK) == []
