"""How far a run is, how fast, and how long it will still take."""

from __future__ import annotations

from dataclasses import dataclass

from batchjobs.worker.run_figures import RunFigures
from executor.metrics import EngineMetrics
from executor.profile import ProfileReport

StepTimes = ProfileReport
"""Where the time of an engine's steps went."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Lines of the jobs at hand; tokens of this run. `eta_seconds` is None until known."""

    done: int
    failed: int
    total: int
    prompt_tokens: int
    completion_tokens: int
    tokens_per_second: float
    """Generated tokens, or those of texts embedded, over the time since the model was ready."""
    eta_seconds: float | None
    running: int
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReport:
    """What one model did in a run; `wall_seconds` from ready to done. `advice` are sentences;
    `profile` is there for an engine that has one."""

    model: str
    wall_seconds: float
    prompt_tokens: int
    completion_tokens: int
    steps: int
    mean_running: float
    kv_cache_usage_peak: float
    preemptions: int
    decisions: tuple[tuple[str, str], ...]
    figures: RunFigures
    advice: tuple[str, ...]
    profile: StepTimes | None

    @property
    def generates(self) -> bool:
        """Whether text came out, and not vectors alone."""
        return self.completion_tokens > 0

    @property
    def has_answered(self) -> bool:
        """Whether any line was answered: an answer has a prompt at least."""
        return self.prompt_tokens > 0 or self.completion_tokens > 0

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens a second; where nothing is generated, those of prompts."""
        return _rate(self.prompt_tokens, self.completion_tokens, self.wall_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What a run did, model by model; load times are not counted."""

    models: tuple[ModelReport, ...] = ()

    @property
    def wall_seconds(self) -> float:
        return sum(report.wall_seconds for report in self.models)

    @property
    def prompt_tokens(self) -> int:
        return sum(report.prompt_tokens for report in self.models)

    @property
    def completion_tokens(self) -> int:
        return sum(report.completion_tokens for report in self.models)

    @property
    def tokens_per_second(self) -> float:
        return _rate(self.prompt_tokens, self.completion_tokens, self.wall_seconds)


def _rate(prompt_tokens: int, completion_tokens: int, seconds: float) -> float:
    return (completion_tokens or prompt_tokens) / seconds if seconds else 0.0


def estimate_seconds(
    remaining_tokens: float | None, metrics: EngineMetrics, finished_tokens: int, elapsed: float
) -> float | None:
    """Time for `remaining_tokens`, of which the running sequences have dealt with some.

    `finished_tokens` are those of the requests that this engine has completed.
    """
    covered = metrics.covered_tokens_total
    if remaining_tokens is None or not covered or elapsed <= 0:
        return None
    in_flight = max(0, covered - finished_tokens)
    rate = covered / elapsed
    return max(0.0, remaining_tokens - in_flight) / rate
