"""How an engine, or another way to answer requests, did in one run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from executor.metrics import EngineMetrics
from executor.recorder import Recorder, Symptoms
from executor.roofline import MachinePeak
from executor.settings import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """The machine's peak, measured in the same run, and what share of it was used (0 to 1).

    `share` is by torch's own matrix product, `packed_share` by the one with packed weights, which
    may be more than twice as fast; None where weights are not packed.
    """

    sgemm_best_gflops: float
    sgemm_median_gflops: float
    packed_best_gflops: float | None
    read_gbytes_per_second: float
    least_seconds: float
    share: float
    packed_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """Seconds unless a name says otherwise; shares are 0 to 1; None is not known.

    `occupancy` is the share of slots with an answer in the making, averaged over time;
    `useful_share` that of computed positions which were no padding, no wrong guess and not computed
    before.
    """

    requests: int
    prompt_tokens: int
    output_tokens: int
    wall_seconds: float
    slots: int
    occupancy: float
    computed_positions: int
    useful_share: float
    first_token_p50: float
    first_token_p99: float
    steps: int
    step_p50: float
    step_p99: float
    preemptions: int = 0
    recomputed_tokens: int = 0
    guessed_tokens: int = 0
    right_guesses: int = 0
    out_of_memory_steps: int = 0
    kv_peak_share: float | None = None
    kv_peak_bytes: int | None = None
    roofline: Roofline | None = None

    @property
    def output_rate(self) -> float:
        """Generated tokens a second."""
        return self.output_tokens / self.wall_seconds if self.wall_seconds else 0.0

    @property
    def total_rate(self) -> float:
        """Prompt and generated tokens a second."""
        tokens = self.prompt_tokens + self.output_tokens
        return tokens / self.wall_seconds if self.wall_seconds else 0.0

    def cost_per_million(self, price_per_hour: float) -> float | None:
        """Of generated tokens, in the price's currency."""
        if not self.output_tokens:
            return None
        return price_per_hour * self.wall_seconds / 3600 / self.output_tokens * 1e6

    def as_dict(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "output_tokens_per_second": self.output_rate,
            "total_tokens_per_second": self.total_rate,
        }


def engine_figures(
    recorder: Recorder,
    metrics: EngineMetrics,
    limits: Limits,
    *,
    requests: int,
    wall_seconds: float,
    peak: MachinePeak | None,
) -> RunFigures:
    """Of a run of ours; `metrics` are what has grown since it began."""
    recorder.end()
    computed, again = metrics.computed_tokens_total, metrics.num_recomputed_tokens_total
    pool_bytes = None
    if recorder.tally is not None and limits.num_blocks:
        pool_bytes = limits.num_blocks * limits.block_size * recorder.tally.cost.kv_bytes
    return RunFigures(
        requests=requests,
        prompt_tokens=metrics.prompt_tokens_total,
        output_tokens=metrics.generation_tokens_total,
        wall_seconds=wall_seconds,
        slots=limits.max_num_seqs,
        occupancy=recorder.mean_running / limits.max_num_seqs,
        computed_positions=computed,
        useful_share=(computed - metrics.wasted_tokens_total) / computed if computed else 0.0,
        first_token_p50=recorder.first_tokens.percentile(0.5),
        first_token_p99=recorder.first_tokens.percentile(0.99),
        steps=metrics.steps_total,
        step_p50=recorder.steps.percentile(0.5),
        step_p99=recorder.steps.percentile(0.99),
        preemptions=metrics.num_preemptions_total,
        recomputed_tokens=again,
        guessed_tokens=metrics.spec_decode_num_draft_tokens_total,
        right_guesses=metrics.spec_decode_num_accepted_tokens_total,
        out_of_memory_steps=metrics.num_out_of_memory_total,
        kv_peak_share=metrics.kv_cache_usage_peak if limits.num_blocks else None,
        kv_peak_bytes=None
        if pool_bytes is None
        else round(metrics.kv_cache_usage_peak * pool_bytes),
        roofline=None if peak is None else _roofline(recorder, peak, wall_seconds),
    )


def _roofline(recorder: Recorder, peak: MachinePeak, wall_seconds: float) -> Roofline | None:
    tally, packed = recorder.tally, peak.with_packed_weights
    if tally is None:
        return None
    return Roofline(
        sgemm_best_gflops=peak.flops / 1e9,
        sgemm_median_gflops=peak.median_flops / 1e9,
        packed_best_gflops=None if packed is None else packed.flops / 1e9,
        read_gbytes_per_second=peak.bandwidth / 1e9,
        least_seconds=tally.least_seconds(peak),
        share=tally.share_of_roofline(peak, wall_seconds),
        packed_share=None if packed is None else tally.share_of_roofline(packed, wall_seconds),
    )


FEW_REQUESTS = 5
_OFTEN = 0.2
_MANY_PREEMPTIONS = 0.05
_MUCH_RECOMPUTED = 0.01


def advice(figures: RunFigures, symptoms: Symptoms, limits: Limits) -> tuple[str, ...]:
    """What to set otherwise, a sentence each, for what was seen in a run of ours."""
    if figures.requests < FEW_REQUESTS:
        return (
            f"With {figures.requests} requests there is next to nothing to batch: these figures"
            " say little. Bring more.",
        )
    if not symptoms.steps:
        return ()
    return tuple(_sentences(figures, symptoms, limits))


def _sentences(figures: RunFigures, symptoms: Symptoms, limits: Limits) -> list[str]:
    found = []
    if symptoms.memory_short / symptoms.steps > _OFTEN:
        found.append(
            "Requests waited while the KV cache was full: lower BATCHJOBS_MAX_MODEL_LEN, raise"
            " BATCHJOBS_KV_CACHE_MEMORY, or add memory."
        )
    if symptoms.slots_short / symptoms.steps > _OFTEN:
        found.append(
            "Requests waited for a slot while the KV cache was less than half full: raise"
            f" BATCHJOBS_MAX_NUM_SEQS (now {limits.max_num_seqs})."
        )
    if (
        figures.preemptions > _MANY_PREEMPTIONS * figures.requests
        or figures.recomputed_tokens > _MUCH_RECOMPUTED * figures.computed_positions
    ):
        found.append(
            f"{figures.preemptions:,} preemptions made {figures.recomputed_tokens:,} tokens be"
            f" computed again: lower BATCHJOBS_MAX_NUM_SEQS (now {limits.max_num_seqs})."
        )
    if figures.out_of_memory_steps:
        found.append(
            f"{figures.out_of_memory_steps:,} steps did not fit the memory and were tried again in"
            " parts: lower BATCHJOBS_KV_CACHE_MEMORY or BATCHJOBS_MAX_NUM_BATCHED_TOKENS (now"
            f" {limits.max_num_batched_tokens})."
        )
    return found
