"""Every backend against the reference, and the reference against a formula written out."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from executor.attention.base import AttentionBackend, AttentionOptions, LayerCache, PackedBatch
from executor.attention.reference import attend
from executor.build import BACKENDS
from executor.model import pack
from executor.request import Request
from executor.sequence import Group, Sequence
from executor.span import Span

KV_HEADS, GROUP, KEY, VALUE, BLOCK = 2, 3, 8, 6, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Of keys, values and blocks."""

    key: int = KEY
    value: int = VALUE
    block: int = BLOCK


SIZES = [Sizes(), Sizes(key=8, value=16, block=8), Sizes(key=64, value=48, block=16),
         Sizes(key=32, value=32, block=128), Sizes(key=16, value=160, block=32)]  # fmt: skip

OPTIONS = {
    "plain": {},
    "window": {"window": 5},
    "softcap": {"softcap": 2.0},
    "sinks": {"sinks": torch.linspace(-2, 2, KV_HEADS * GROUP)},
    "all": {"window": 3, "softcap": 2.0, "sinks": torch.linspace(-1, 3, KV_HEADS * GROUP)},
}


def make_batch(
    spans: list[tuple[int, int]], sizes: Sizes = SIZES[0]
) -> tuple[PackedBatch, LayerCache, Tensor]:
    """Sequences given by (computed before, tokens in this step), blocks in mixed order."""
    generator = torch.Generator().manual_seed(1)
    total_blocks = sum(-(-(before + count) // sizes.block) for before, count in spans)
    free = torch.randperm(total_blocks, generator=generator).tolist()
    packed = []
    for before, count in spans:
        tokens = [0] * (before + count)
        request = Request(id="r", prompt_token_ids=tuple(tokens))
        sequence = Sequence(group=Group(request), index=0, tokens=tokens, watcher=None)
        sequence.block_table = [free.pop() for _ in range(-(-len(tokens) // sizes.block))]
        packed.append(Span(sequence, before, count))
    batch = pack(packed, sizes.block, torch.device("cpu"))
    cache = LayerCache(
        torch.randn(total_blocks, KV_HEADS, sizes.block, sizes.key, generator=generator),
        torch.randn(total_blocks, KV_HEADS, sizes.block, sizes.value, generator=generator),
    )
    for span in packed:  # memory that no token has been written to
        last, written = span.sequence.block_table[-1], len(span.sequence.tokens) % sizes.block
        if written:
            cache.keys[last, :, written:] = cache.values[last, :, written:] = torch.nan
    count = sum(count for _, count in spans)
    query = torch.randn(count, KV_HEADS * GROUP, sizes.key, generator=generator)
    return batch, cache, query


def written_out(
    query: Tensor, keys: Tensor, values: Tensor, position: int, head: int, options: AttentionOptions
) -> Tensor:
    """One query [Dk] of one head over keys [C, Dk] and values [C, Dv], number by number."""
    first = 0 if options.window is None else max(0, position - options.window + 1)
    scores = [float(query @ keys[i]) * options.scale for i in range(first, position + 1)]
    if options.softcap is not None:
        scores = [options.softcap * math.tanh(s / options.softcap) for s in scores]
    weights = [math.exp(s) for s in scores]
    sink = 0.0 if options.sinks is None else math.exp(float(options.sinks[head]))
    total = sum(weights) + sink
    return sum((w / total * values[first + i] for i, w in enumerate(weights)), torch.zeros(VALUE))


@pytest.mark.parametrize("name", OPTIONS)
def test_reference_equals_the_formula(name: str) -> None:
    options = AttentionOptions(scale=0.3, **OPTIONS[name])  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(0)
    context, positions = 9, [6, 7, 8]
    keys = torch.randn(KV_HEADS, context, KEY, generator=generator)
    values = torch.randn(KV_HEADS, context, VALUE, generator=generator)
    query = torch.randn(len(positions), KV_HEADS * GROUP, KEY, generator=generator)
    output = attend(query, keys, values, torch.tensor(positions), options)
    for q, position in enumerate(positions):
        for head in range(KV_HEADS * GROUP):
            kv = head // GROUP
            expected = written_out(query[q, head], keys[kv], values[kv], position, head, options)
            torch.testing.assert_close(output[q, head], expected)


@pytest.mark.parametrize("backend", [b for n, b in BACKENDS.items() if n != "reference"])
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize(
    "spans",
    [
        [(0, 1)],
        [(7, 1), (0, 1), (30, 1), (3, 1)],
        [(0, 9), (0, 4)],
        [(11, 6), (5, 1), (0, 300), (63, 1)],
    ],
    ids=["first token", "decode", "prefill", "mixed chunks"],
)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_backend_equals_reference(
    backend: AttentionBackend, name: str, spans: list[tuple[int, int]], sizes: Sizes
) -> None:
    options = AttentionOptions(scale=0.3, **OPTIONS[name])  # type: ignore[arg-type]
    batch, cache, query = make_batch(spans, sizes)
    expected = BACKENDS["reference"](query, cache, batch, options)
    torch.testing.assert_close(backend(query, cache, batch, options), expected)


@pytest.mark.parametrize("backend", [b for n, b in BACKENDS.items() if n != "reference"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["plain", "all"])
@pytest.mark.parametrize("spans", [[(7, 1), (30, 1)], [(11, 6), (5, 1), (0, 300), (63, 1)]])
@pytest.mark.parametrize("sizes", SIZES[1:4], ids=str)
def test_backend_computes_in_float32_over_a_cache_of_16_bits(
    backend: AttentionBackend,
    dtype: torch.dtype,
    name: str,
    spans: list[tuple[int, int]],
    sizes: Sizes,
) -> None:
    options = AttentionOptions(scale=0.3, **OPTIONS[name])  # type: ignore[arg-type]
    batch, cache, query = make_batch(spans, sizes)
    short = LayerCache(cache.keys.to(dtype), cache.values.to(dtype))
    wide = LayerCache(short.keys.float(), short.values.float())
    expected = BACKENDS["reference"](query, wide, batch, options)
    torch.testing.assert_close(backend(query, short, batch, options), expected)


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
def test_bfloat16_stays_close_to_float32(backend: AttentionBackend) -> None:
    options = AttentionOptions(scale=0.3)
    batch, cache, query = make_batch([(11, 6), (5, 1), (63, 1)])
    expected = BACKENDS["reference"](query, cache, batch, options)
    half = LayerCache(cache.keys.bfloat16(), cache.values.bfloat16())
    output = backend(query.bfloat16(), half, batch, options)
    assert output.dtype == torch.bfloat16
    torch.testing.assert_close(output.float(), expected, atol=0.03, rtol=0.03)


def test_pack_places_each_token_in_its_sequence_block() -> None:
    batch, cache, _ = make_batch([(2, 5), (0, 3)])
    assert batch.query_starts == [0, 5]
    assert batch.query_lens == [5, 3]
    assert batch.context_lens == [7, 3]
    key = torch.arange(8.0).view(8, 1, 1).expand(8, KV_HEADS, KEY)
    cache.write(key, key[..., :VALUE], batch.slots)
    keys, _ = cache.gather(batch.block_tables[:1], torch.float32)
    assert keys[0, 0, 2:7, 0].tolist() == [0, 1, 2, 3, 4]
    keys, _ = cache.gather(batch.block_tables[1:2], torch.float32)
    assert keys[0, 1, :3, 0].tolist() == [5, 6, 7]
