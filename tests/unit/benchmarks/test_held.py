"""How many bytes can be reached from an engine."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from benchmarks.held import held_bytes, union
from executor.build import build_engine
from executor.linear import PanelLinear
from executor.loading import Checkpoint
from executor.product import fits
from executor.settings import EngineSettings
from tests.support.tiny_models import save_tiny, tiny_config


def test_addresses_that_are_shared_count_once() -> None:
    assert union([(10, 20), (0, 5), (15, 30), (16, 18), (40, 40)]) == 25
    assert union([]) == 0


def test_views_of_one_tensor_count_once_and_only_what_they_show() -> None:
    whole = torch.zeros(100, 8)
    assert held_bytes([whole[:50], whole[25:75], whole[0]]) == (75 * 8 * 4, 0)


def test_tensors_are_found_behind_modules_methods_and_closures() -> None:
    linear = nn.Linear(8, 4, bias=False)
    alone, closed, bound = torch.zeros(3), torch.zeros(5), torch.zeros(7)

    def show() -> torch.Tensor:
        return closed

    linear.extra = {"one": (alone,)}  # type: ignore[assignment]
    found = [linear.forward, show, partial(torch.add, bound)]
    assert held_bytes(found) == (4 * (32 + 3 + 5 + 7), 0)


def test_packed_panels_count_as_what_they_were_packed_from() -> None:
    weight = torch.randn(64, 48)
    if not fits(weight):
        pytest.skip("the product's kernel is not made for this machine")
    assert held_bytes(PanelLinear(weight, None)) == (weight.nbytes + 64 * 4, 0)


def test_an_engine_holds_its_weights_and_the_cache_that_it_states(tmp_path: Path) -> None:
    config = tiny_config("llama", tie_word_embeddings=True)
    save_tiny(tmp_path, config)
    asked = EngineSettings(dtype="float32", kv_cache_memory=1 << 21)
    engine = build_engine(Checkpoint(source=str(tmp_path)), asked).engine
    packed, cache = held_bytes(engine)
    limits = engine.limits
    token = 3 * 2 * (8 + 8) * 4  # of 3 layers, 2 heads of 8 for keys and for values
    assert cache == limits.num_blocks * limits.block_size * token
    layer = 32 * (32 + 16 + 16 + 32) + 3 * 32 * 48 + 2 * 32
    weights = 4 * (128 * 32 + 3 * layer + 32)
    assert weights <= packed <= 1.3 * weights + 128 * 32 * 4  # the head may be packed as well
