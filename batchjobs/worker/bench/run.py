"""The whole of `batchjobs bench`: every way in turn, on one machine, in one process."""

from __future__ import annotations

import gc
import os
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from batchjobs import __version__
from batchjobs.errors import ModelError, UsageError
from batchjobs.models import Model
from batchjobs.settings import Settings
from batchjobs.worker.bench.company import Company
from batchjobs.worker.bench.generated import DEFAULT_REQUESTS, generate
from batchjobs.worker.bench.ours import run_ours
from batchjobs.worker.bench.request_file import read_requests
from batchjobs.worker.bench.ways import WayResult, longest, same_answers
from batchjobs.worker.engines import CheckpointEngines, LoadedModel
from batchjobs.worker.peaks import machine_peak
from executor.profile import ProfileReport
from executor.request import Request

AGAINST = ("static", "sorted", "unchunked")
Progress = Callable[[str, int, int], None]
"""Told the way at work, its finished requests and all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlan:
    """`workload` is a name of DEFAULT_REQUESTS or a file; `against` of AGAINST."""

    workload: str
    against: tuple[str, ...]
    requests: int | None
    profiled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchReport:
    """`results` begin with ours; `equal_answers` of each of the others, where answers are greedy
    and so must be the same but for rounding."""

    plan: BenchPlan
    model: str
    decisions: tuple[tuple[str, str], ...]
    versions: dict[str, str]
    load_average: float
    results: tuple[WayResult, ...]
    equal_answers: dict[str, int]
    profile: ProfileReport | None

    @property
    def ours(self) -> WayResult:
        return self.results[0]

    def as_dict(self, price_per_hour: float | None) -> dict[str, Any]:
        return {
            "workload": self.plan.workload,
            "model": self.model,
            "versions": self.versions,
            "load_average_at_start": self.load_average,
            "decisions": dict(self.decisions),
            "price_per_hour": price_per_hour,
            "ways": {r.name: _way(r, self.ours, price_per_hour) for r in self.results},
            "equal_answers": self.equal_answers,
            "advice": list(self.ours.advice),
            "profile": None if self.profile is None else asdict(self.profile),
        }


def run_bench(settings: Settings, model: Model, plan: BenchPlan, show: Progress) -> BenchReport:
    """Raises:
    UsageError: the model is too short for the workload.
    InvalidFileError: the workload is a file with a line that cannot run.
    ModelError: the model cannot be loaded.
    """
    load_average = os.getloadavg()[0]
    loaded = CheckpointEngines(settings, profiled=plan.profiled).load(model)
    requests = _requests(plan, loaded, settings)
    _check_length(requests, loaded)
    if loaded.embedding is not None:
        plan = replace(plan, against=())  # the other ways are ways to generate
    device, decisions = loaded.device, loaded.decisions
    name = loaded.called(model.name)
    assert device is not None, "a checkpoint's engine has a device"
    peak = machine_peak(device)
    count = _count(show, "ours", len(requests))
    results = [_watched(partial(run_ours, loaded, requests, peak, count))]
    profile = None if loaded.profile is None else loaded.profile.report()
    slots = loaded.engine.limits.max_num_seqs
    del loaded
    gc.collect()
    if "unchunked" in plan.against:
        results.append(_watched(partial(_unchunked, settings, model, requests, slots, show)))
    if by_length := [way == "sorted" for way in plan.against if way != "unchunked"]:
        from batchjobs.worker.bench.static import StaticModel

        static = StaticModel(model, device)
        for is_sorted in by_length:
            count = _count(show, "sorted" if is_sorted else "static", len(results[0].lengths))
            run = partial(static.run, requests, results[0].lengths, count, by_length=is_sorted)
            results.append(_watched(run))
    greedy = all(request.sampling.temperature == 0 for request in requests)
    return BenchReport(
        plan=plan,
        model=name,
        decisions=decisions,
        versions=_versions(),
        load_average=load_average,
        results=tuple(results),
        equal_answers={
            other.name: same_answers(results[0].answers, other.answers)
            for other in results[1:]
            if greedy
        },
        profile=profile,
    )


def check_plan(plan: BenchPlan) -> None:
    """Raises UsageError before a model is loaded for nothing."""
    unknown = [way for way in plan.against if way not in AGAINST]
    if unknown:
        raise UsageError(f"--against {unknown[0]!r} is none of {', '.join(AGAINST)}.")
    if plan.workload not in DEFAULT_REQUESTS and not Path(plan.workload).is_file():
        raise UsageError(
            f"--workload {plan.workload!r} is neither a file nor one of"
            f" {', '.join(DEFAULT_REQUESTS)}."
        )


def _requests(plan: BenchPlan, loaded: LoadedModel, settings: Settings) -> list[Request]:
    if plan.workload not in DEFAULT_REQUESTS:
        return read_requests(
            Path(plan.workload),
            loaded.context("bench"),
            count=plan.requests,
            max_line_bytes=settings.max_line_bytes,
        )
    if loaded.embedding is not None:
        raise UsageError(
            "An embedding model is measured with texts of yours: --workload FILE.jsonl, of"
            " lines for /v1/embeddings."
        )
    count = plan.requests or DEFAULT_REQUESTS[plan.workload]
    try:
        return generate(plan.workload, loaded.tokenizer, count)
    except ValueError as refused:
        raise ModelError(f"The workload cannot be written for this model: {refused}.") from refused


def _check_length(requests: list[Request], loaded: LoadedModel) -> None:
    needed, allowed = longest(requests), loaded.engine.limits.max_model_len
    if needed > allowed:
        raise UsageError(
            f"The workload has a request of {needed:,} tokens, and this model takes {allowed:,}:"
            " choose another --workload, or a FILE.jsonl of shorter ones."
        )


def _unchunked(
    settings: Settings, model: Model, requests: list[Request], slots: int, show: Progress
) -> WayResult:
    """Ours with steps large enough for any number of whole prompts."""
    longest_prompts = sorted((len(r.prompt_token_ids) for r in requests), reverse=True)[:slots]
    whole = settings.model_copy(update={"max_num_batched_tokens": sum(longest_prompts) + slots})
    return run_ours(
        CheckpointEngines(whole).load(model),
        requests,
        None,
        _count(show, "unchunked", len(requests)),
        name="unchunked",
        title="continuous batching without chunked prefill",
    )


def _watched(measure: Callable[[], WayResult]) -> WayResult:
    company = Company()
    result = measure()
    return replace(result, others_share=company.share())


def _count(show: Progress, way: str, total: int) -> Callable[[], None]:
    done = iter(range(1, total + 1))
    show(way, 0, total)
    return lambda: show(way, next(done, total), total)


def _way(result: WayResult, ours: WayResult, price_per_hour: float | None) -> dict[str, Any]:
    cost = None if price_per_hour is None else result.figures.cost_per_million(price_per_hour)
    return {
        **result.figures.as_dict(),
        "title": result.title,
        "others_share": result.others_share,
        "cost_per_million_output_tokens": cost,
        "times_ours_wall": result.figures.wall_seconds / ours.figures.wall_seconds,
        "course": [[round(moment.at, 4), moment.running] for moment in result.course],
    }


def _versions() -> dict[str, str]:
    packages = ("torch", "transformers", "numba", "numpy")
    return {
        "batchjobs": __version__,
        "python": platform.python_version(),
        **{package: version(package) for package in packages},
    }
