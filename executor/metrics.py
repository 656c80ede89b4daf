"""The engine's counters, under vLLM's names where it has one."""

from __future__ import annotations

from dataclasses import dataclass, replace

_COUNTERS = (
    "num_preemptions_total",
    "prompt_tokens_total",
    "generation_tokens_total",
    "computed_tokens_total",
    "steps_total",
    "recomputed_tokens_total",
    "running_sum",
)


@dataclass(slots=True)
class EngineMetrics:
    """Gauges hold the last step's value, or 0 at rest; counters only grow."""

    num_requests_running: int = 0
    num_requests_waiting: int = 0
    kv_cache_usage_perc: float = 0.0
    """Share of blocks in use, 0 to 1."""
    num_preemptions_total: int = 0
    prompt_tokens_total: int = 0
    generation_tokens_total: int = 0
    computed_tokens_total: int = 0
    """Positions computed, recomputed ones counted again."""
    recomputed_tokens_total: int = 0
    """Positions given up by preemption."""
    steps_total: int = 0
    running_sum: int = 0
    """Running sequences summed over steps; divided by steps, their mean."""
    kv_cache_usage_peak: float = 0.0

    @property
    def mean_running(self) -> float:
        return self.running_sum / self.steps_total if self.steps_total else 0.0

    def since(self, earlier: EngineMetrics) -> EngineMetrics:
        """The gauges as they are, and what the counters have grown by since `earlier`, a copy."""
        grown = {name: getattr(self, name) - getattr(earlier, name) for name in _COUNTERS}
        return replace(self, **grown)

    def rest(self) -> None:
        """Nothing is in the engine any more."""
        self.num_requests_running = self.num_requests_waiting = 0
        self.kv_cache_usage_perc = 0.0

    def observe_step(self, *, running: int, waiting: int, kv_usage: float, tokens: int) -> None:
        self.num_requests_running = running
        self.num_requests_waiting = waiting
        self.kv_cache_usage_perc = kv_usage
        self.kv_cache_usage_peak = max(self.kv_cache_usage_peak, kv_usage)
        self.running_sum += running
        self.computed_tokens_total += tokens
        self.steps_total += 1
