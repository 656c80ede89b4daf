"""The engine's counters, under vLLM's names where it has one."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class EngineMetrics:
    """Gauges hold the last step's value, counters only grow; seconds are monotonic time."""

    num_requests_running: int = 0
    num_requests_waiting: int = 0
    kv_cache_usage_perc: float = 0.0
    """Share of blocks in use, 0 to 1."""
    num_preemptions_total: int = 0
    prompt_tokens_total: int = 0
    generation_tokens_total: int = 0
    computed_tokens_total: int = 0
    """Positions computed, recomputed ones counted again."""
    steps_total: int = 0
    running_sum: int = 0
    """Running sequences summed over steps; divided by steps, their mean."""
    kv_cache_usage_peak: float = 0.0
    started: float = field(default_factory=time.monotonic)

    @property
    def mean_running(self) -> float:
        return self.running_sum / self.steps_total if self.steps_total else 0.0

    def observe_step(self, *, running: int, waiting: int, kv_usage: float, tokens: int) -> None:
        self.num_requests_running = running
        self.num_requests_waiting = waiting
        self.kv_cache_usage_perc = kv_usage
        self.kv_cache_usage_peak = max(self.kv_cache_usage_peak, kv_usage)
        self.running_sum += running
        self.computed_tokens_total += tokens
        self.steps_total += 1
