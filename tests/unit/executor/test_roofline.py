"""The formula, against cases worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from executor.cost import model_cost
from executor.loading import Checkpoint, load
from executor.probing import probe_layers
from executor.roofline import MachinePeak, ModelCost, StepWork, WorkTally, step_work
from executor.settings import EngineSettings
from tests.support.tiny_models import save_tiny, tiny_config, tiny_model

COST = ModelCost(body=100, head=10, attention=4, weight_bytes=440, kv_bytes=16)
PEAK = MachinePeak(flops=1000.0, median_flops=800.0, bandwidth=500.0)
DECODE = StepWork(positions=1, rows=1, attended=10, kv_tokens=10)
PREFILL = StepWork(positions=50, rows=1, attended=1275, kv_tokens=50)


def test_flops_are_of_body_head_and_attention() -> None:
    assert COST.flops(DECODE) == 2 * 100 + 2 * 10 + 4 * 10
    assert COST.flops(PREFILL) == 2 * 100 * 50 + 2 * 10 + 4 * 1275


def test_bytes_are_all_weights_once_and_the_contexts() -> None:
    assert COST.bytes(DECODE) == 440 + 16 * 10


def test_a_span_attends_to_all_before_it_and_to_itself() -> None:
    # Positions 3, 4, 5 attend to 4, 5 and 6 tokens; position 7 to 8.
    work = step_work([(3, 3, False), (7, 1, True)], kv_tokens=14)
    assert work == StepWork(positions=4, rows=1, attended=4 + 5 + 6 + 8, kv_tokens=14)


def test_each_step_is_bound_by_the_slower_of_computing_and_reading() -> None:
    tally = WorkTally(COST)
    tally.add(DECODE)  # 260 FLOPs: 0.26 s; 600 bytes: 1.2 s
    tally.add(PREFILL)  # 15,120 FLOPs: 15.12 s; 1,240 bytes: 2.48 s
    assert tally.least_seconds(PEAK) == pytest.approx(1.2 + 15.12)
    assert tally.share_of_roofline(PEAK, 32.64) == pytest.approx(0.5)
    assert (tally.steps, tally.flops, tally.bytes) == (2, 15_380, 1_840)


def test_a_tally_forgets() -> None:
    tally = WorkTally(COST)
    tally.add(DECODE)
    tally.reset()
    assert tally.least_seconds(PEAK) == tally.share_of_roofline(PEAK, 1.0) == 0.0


def test_no_time_is_no_share() -> None:
    assert WorkTally(COST).share_of_roofline(PEAK, 0.0) == 0.0


def test_memory_does_not_grow_with_steps() -> None:
    tally = WorkTally(COST)
    for _ in range(1000):
        tally.add(DECODE)
    assert len(tally._bins) == 1
    assert tally.least_seconds(PEAK) == pytest.approx(1200)


def test_a_tiny_llama_costs_what_its_matrices_have(tmp_path: Path) -> None:
    save_tiny(tmp_path, tiny_config("llama"))
    loaded = load(Checkpoint(source=str(tmp_path)), EngineSettings(dtype="float32"))
    layers = probe_layers(loaded.module, loaded.config)
    cost = model_cost(loaded.module, layers, weight_bytes=4, cache=torch.float32)
    # q, k, v, o and gate, up, down of three layers, and their norms beside the last one.
    layer = 32 * 32 + 2 * 32 * 16 + 32 * 32 + 3 * 32 * 48 + 2 * 32
    assert cost.body == 3 * layer + 32
    assert cost.head == 128 * 32
    assert cost.attention == 3 * 4 * 4 * 8
    assert cost.weight_bytes == 4 * (cost.body + cost.head)
    assert cost.kv_bytes == 3 * 2 * 2 * 8 * 4


def test_tied_weights_are_counted_once_and_idle_experts_not() -> None:
    config = tiny_config("qwen3_moe", tie_word_embeddings=True)
    model = tiny_model(config, attention="eager")
    cost = model_cost(model, {}, weight_bytes=4, cache=torch.float32)
    experts = 3 * 4 * 3 * 32 * 16
    dense = sum(p.numel() for p in model.parameters()) - 128 * 32 - experts
    assert cost.body == dense + experts // 2
    assert cost.weight_bytes == 4 * (dense + experts + 128 * 32)


def test_without_packed_weights_there_is_no_limit_of_theirs() -> None:
    assert PEAK.with_packed_weights is None
