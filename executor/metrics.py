"""The engine's counters, under vLLM's names where it has one."""

from __future__ import annotations

from dataclasses import dataclass, replace

_COUNTERS = (
    "num_preemptions_total",
    "num_out_of_memory_total",
    "prompt_tokens_total",
    "generation_tokens_total",
    "forced_tokens_total",
    "computed_tokens_total",
    "num_recomputed_tokens_total",
    "prefix_cache_queries_total",
    "prefix_cache_hits_total",
    "num_deduplicated_requests_total",
    "deduplicated_tokens_total",
    "padded_tokens_total",
    "spec_decode_num_draft_tokens_total",
    "spec_decode_num_accepted_tokens_total",
    "steps_total",
    "running_sum",
    "slots_sum",
)


@dataclass(slots=True)
class EngineMetrics:
    """Gauges hold the last step's value, or 0 at rest; counters only grow."""

    num_requests_running: int = 0
    num_requests_waiting: int = 0
    kv_cache_usage_perc: float = 0.0
    """Share of blocks in use, 0 to 1."""
    num_preemptions_total: int = 0
    num_out_of_memory_total: int = 0
    """Steps that did not fit the memory, and were tried again in parts."""
    prompt_tokens_total: int = 0
    generation_tokens_total: int = 0
    forced_tokens_total: int = 0
    """Of these, tokens that a grammar left no choice about: appended without being sampled."""
    computed_tokens_total: int = 0
    """Positions computed, recomputed ones counted again."""
    num_recomputed_tokens_total: int = 0
    """Positions whose cache was given up in a preemption and not found again in another's."""
    prefix_cache_queries_total: int = 0
    prefix_cache_hits_total: int = 0
    """Prompt tokens of sequences that began to run, and those of them computed before."""
    num_deduplicated_requests_total: int = 0
    deduplicated_tokens_total: int = 0
    """Requests that had an equal one's answer, and their prompts' and answers' tokens."""
    padded_tokens_total: int = 0
    """Positions that a loop with padding computes for the same static batches."""
    spec_decode_num_draft_tokens_total: int = 0
    spec_decode_num_accepted_tokens_total: int = 0
    """Guessed tokens that were checked, and those of them that were right."""
    steps_total: int = 0
    running_sum: int = 0
    """Running sequences summed over steps; divided by steps, their mean."""
    slots_sum: int = 0
    """Slots taken, summed over steps; a static batch holds those of its ended members."""
    kv_cache_usage_peak: float = 0.0

    @property
    def mean_running(self) -> float:
        return self.running_sum / self.steps_total if self.steps_total else 0.0

    @property
    def covered_tokens_total(self) -> int:
        """Positions of requests that are dealt with: computed once, or spared."""
        spared = self.prefix_cache_hits_total + self.deduplicated_tokens_total
        return self.computed_tokens_total - self.wasted_tokens_total + spared

    @property
    def wasted_tokens_total(self) -> int:
        """Positions computed that were computed before, or were guesses and wrong."""
        drafts = self.spec_decode_num_draft_tokens_total
        wrong = drafts - self.spec_decode_num_accepted_tokens_total
        return self.num_recomputed_tokens_total + wrong

    def since(self, earlier: EngineMetrics) -> EngineMetrics:
        """The gauges as they are, and what the counters have grown by since `earlier`, a copy."""
        grown = {name: getattr(self, name) - getattr(earlier, name) for name in _COUNTERS}
        return replace(self, **grown)

    def rest(self) -> None:
        """Nothing is in the engine any more."""
        self.num_requests_running = self.num_requests_waiting = 0
        self.kv_cache_usage_perc = 0.0

    def observe_step(
        self, *, running: int, waiting: int, slots: int, kv_usage: float, tokens: int
    ) -> None:
        self.num_requests_running = running
        self.num_requests_waiting = waiting
        self.kv_cache_usage_perc = kv_usage
        self.kv_cache_usage_peak = max(self.kv_cache_usage_peak, kv_usage)
        self.running_sum += running
        self.slots_sum += slots
        self.computed_tokens_total += tokens
        self.steps_total += 1
