"""The cache is begun before the weights are in order, and is in the end what was planned after."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from executor import memory, model, sizing
from executor.build import build_engine
from executor.loading import Checkpoint
from executor.model import LayerShape, PagedCache
from executor.request import Request, SamplingParams
from executor.settings import EngineSettings, Limits
from tests.support.tiny_models import save_tiny, tiny_config

BLOCK_BYTES = 384 * 64
"""3 layers of 2 key and 2 value heads of 8 float32, 64 tokens."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny(folder, tiny_config("llama"))
    return Checkpoint(source=str(folder))


def free(blocks: int) -> SimpleNamespace:
    """A machine whose memory is planned to hold so many blocks."""
    return SimpleNamespace(available=(blocks + 0.5) * BLOCK_BYTES / sizing.CPU_MEMORY_SHARE)


@pytest.mark.parametrize(
    ("before", "after"),
    [(12, 12), (12, 4), (12, 14), (2, 9), (0, 5), (16, 40)],
)
def test_the_cache_has_what_is_planned_at_last(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, before: int, after: int
) -> None:
    machine: Iterator[SimpleNamespace] = iter([free(10_000), free(before), free(after)])
    monkeypatch.setattr("executor.sizing.psutil.virtual_memory", lambda: next(machine))
    settings = EngineSettings(device="cpu", dtype="float32", max_num_seqs=4)
    engine = build_engine(checkpoint, settings).engine
    cache: PagedCache = engine._model._cache  # type: ignore[attr-defined]
    assert engine.limits.num_blocks == min(after, 16)
    assert cache.num_blocks == engine.limits.num_blocks
    assert {len(tensor) for tensor in cache.tensors} == {engine.limits.num_blocks}
    requests = [
        Request(
            id=str(i),
            prompt_token_ids=tuple((i + k) % 100 + 5 for k in range(150)),
            sampling=SamplingParams(temperature=0, max_tokens=4, ignore_eos=True),
        )
        for i in range(6)
    ]
    assert all(c.completion_tokens == 4 for c in engine.run(requests))
    assert next(machine, None) is None


def paged(blocks: int, numbers: int = 1 << 15) -> PagedCache:
    """Of one layer, whose blocks are of `numbers` float32 in keys and as many in values."""
    shape = LayerShape(kv_heads=1, key_size=numbers // 16, value_size=numbers // 16)
    limits = Limits(
        max_num_seqs=4,
        max_num_batched_tokens=16,
        max_model_len=16,
        num_blocks=blocks,
        block_size=16,
    )
    return PagedCache({0: shape}, limits, dtype=torch.float32, device="cpu")


def test_a_cache_is_not_cut_below_the_memory_it_took() -> None:
    cache = paged(64)
    cache.take_ahead(32)
    memory.wait_for_memory()
    assert cache.taken in (0, 32 * 8 << 15)
    assert not cache.cut(31)
    assert not cache.cut(65)
    assert cache.num_blocks == len(cache.layers[0].keys) == 64
    assert cache.cut(32)
    assert cache.num_blocks == len(cache.layers[0].keys) == len(cache.layers[0].values) == 32


def test_memory_taken_at_start_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "_READY_BYTES", 48 * 8 << 15)
    cache = paged(128)
    cache.take_ahead(10**6)
    memory.wait_for_memory()
    assert cache.taken in (0, 48 * 8 << 15)
    assert cache.cut(48)


def test_a_cache_that_is_let_go_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("executor.memory.Touching.run", lambda self: None)
    cache = paged(64)
    cache.take_ahead(64)
    taking = cache._taking
    if taking is None:
        pytest.skip("no memory is taken ahead here")
    assert taking.taken == 0
    del cache
    assert taking._touching.begun == len(taking._sizes) > 1
