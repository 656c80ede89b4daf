"""Figures, and the advice that symptoms give."""

from __future__ import annotations

from dataclasses import replace

import pytest

from batchjobs.worker.run_figures import RunFigures, advice, engine_figures
from executor.metrics import EngineMetrics
from executor.recorder import Recorder, Symptoms
from executor.roofline import MachinePeak, ModelCost, StepWork
from executor.settings import Limits

LIMITS = Limits(
    max_num_seqs=4, max_num_batched_tokens=64, max_model_len=64, num_blocks=16, block_size=8
)
FIGURES = RunFigures(
    requests=100,
    prompt_tokens=3000,
    output_tokens=1000,
    wall_seconds=10.0,
    slots=4,
    occupancy=0.8,
    computed_positions=4000,
    useful_share=1.0,
    first_token_p50=1.0,
    first_token_p99=2.0,
    steps=100,
    step_p50=0.1,
    step_p99=0.2,
)


def test_rates_are_tokens_over_wall_time() -> None:
    assert (FIGURES.output_rate, FIGURES.total_rate) == (100.0, 400.0)
    nothing = replace(FIGURES, wall_seconds=0.0)
    assert (nothing.output_rate, nothing.total_rate) == (0.0, 0.0)


def test_cost_is_the_price_of_the_time_over_generated_tokens() -> None:
    # 10 s at 3.60 an hour are 0.01, for 1,000 tokens.
    assert FIGURES.cost_per_million(3.6) == pytest.approx(10.0)
    assert replace(FIGURES, output_tokens=0).cost_per_million(3.6) is None


def test_an_engines_figures_come_from_its_counters_and_the_recorder() -> None:
    recorder = Recorder(
        ModelCost(body=100, head=10, attention=4, weight_bytes=440, kv_bytes=16), clock=lambda: 0.0
    )
    assert recorder.tally is not None
    recorder.tally.add(StepWork(positions=50, rows=1, attended=1275, kv_tokens=50))
    metrics = EngineMetrics(
        prompt_tokens_total=90,
        generation_tokens_total=10,
        computed_tokens_total=200,
        num_recomputed_tokens_total=50,
        num_preemptions_total=2,
        kv_cache_usage_peak=0.5,
    )
    peak = MachinePeak(flops=1000.0, median_flops=800.0, bandwidth=500.0, packed_flops=2000.0)
    figures = engine_figures(recorder, metrics, LIMITS, requests=3, wall_seconds=30.24, peak=peak)
    assert (figures.useful_share, figures.recomputed_tokens, figures.preemptions) == (0.75, 50, 2)
    assert figures.kv_peak_bytes == 16 * 8 * 16 // 2
    assert figures.roofline is not None
    assert figures.roofline.share == pytest.approx(0.5)
    assert figures.roofline.packed_share == pytest.approx(0.25)
    told = figures.as_dict()["roofline"]
    assert told["sgemm_best_gflops"] == pytest.approx(1e-6)
    assert told["packed_best_gflops"] == pytest.approx(2e-6)


def test_without_a_peak_there_is_no_roofline() -> None:
    figures = engine_figures(
        Recorder(), EngineMetrics(), LIMITS, requests=0, wall_seconds=0.0, peak=None
    )
    assert (figures.roofline, figures.useful_share, figures.kv_peak_bytes) == (None, 0.0, None)


def test_a_good_run_needs_no_advice() -> None:
    assert advice(FIGURES, Symptoms(steps=100), LIMITS) == ()


@pytest.mark.parametrize(
    ("figures", "symptoms", "words"),
    [
        (replace(FIGURES, requests=4), Symptoms(steps=100), "next to nothing to batch"),
        (FIGURES, Symptoms(steps=100, memory_short=21), "lower BATCHJOBS_MAX_MODEL_LEN"),
        (FIGURES, Symptoms(steps=100, slots_short=21), "raise BATCHJOBS_MAX_NUM_SEQS (now 4)"),
        (replace(FIGURES, preemptions=6), Symptoms(steps=100), "lower BATCHJOBS_MAX_NUM_SEQS"),
        (
            replace(FIGURES, out_of_memory_steps=3),
            Symptoms(steps=100),
            "3 steps did not fit the memory",
        ),
        (
            replace(FIGURES, recomputed_tokens=41),
            Symptoms(steps=100),
            "lower BATCHJOBS_MAX_NUM_SEQS",
        ),
    ],
)
def test_a_symptom_gives_its_advice(figures: RunFigures, symptoms: Symptoms, words: str) -> None:
    [sentence] = advice(figures, symptoms, LIMITS)
    assert words in sentence


@pytest.mark.parametrize(
    ("figures", "symptoms"),
    [
        (FIGURES, Symptoms(steps=100, memory_short=20, slots_short=20)),
        (replace(FIGURES, preemptions=5, recomputed_tokens=40), Symptoms(steps=100)),
        (FIGURES, Symptoms()),
    ],
)
def test_what_happens_now_and_then_is_no_symptom(figures: RunFigures, symptoms: Symptoms) -> None:
    assert advice(figures, symptoms, LIMITS) == ()
