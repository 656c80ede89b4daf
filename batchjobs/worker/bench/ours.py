"""The workload through our engine, without the job queue."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from batchjobs.errors import InvalidFileError
from batchjobs.worker.bench.ways import Answers, WayResult, answer_key
from batchjobs.worker.engines import LoadedModel
from batchjobs.worker.run_figures import advice, engine_figures
from executor.recorder import Recorder
from executor.request import Request, SamplingParams
from executor.roofline import MachinePeak

_WARM_UP = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)


def run_ours(
    loaded: LoadedModel,
    requests: Sequence[Request],
    peak: MachinePeak | None,
    on_answer: Callable[[], None],
    *,
    name: str = "ours",
    title: str = "continuous batching",
) -> WayResult:
    """Raises InvalidFileError when the engine refuses a request."""
    engine = loaded.engine
    for _ in engine.run([_warm_up(request) for request in requests[:2]]):
        pass  # kernels are compiled and memory is touched before the clock runs
    recorder = Recorder(loaded.cost, keeps_course=True)
    engine.watcher = recorder
    engine.metrics.kv_cache_usage_peak = 0.0
    earlier = replace(engine.metrics)
    if loaded.profile is not None:
        loaded.profile.reset()
    recorder.begin()
    started = time.perf_counter()
    answers: Answers = {}
    lengths: dict[str, int] = {}
    try:
        for completion in engine.run(requests):
            if completion.error is not None:
                raise InvalidFileError(f"{completion.request_id} cannot run: {completion.error}.")
            for choice in completion.choices:
                key = answer_key(completion.request_id, choice.index)
                answers[key] = choice.token_ids
                lengths[key] = choice.generated_tokens
            on_answer()
    finally:
        engine.watcher = None
    wall = time.perf_counter() - started
    figures = engine_figures(
        recorder,
        engine.metrics.since(earlier),
        engine.limits,
        requests=len(requests),
        wall_seconds=wall,
        peak=peak,
    )
    return WayResult(
        name=name,
        title=title,
        figures=figures,
        course=tuple(recorder.course),
        answers=answers,
        lengths=lengths,
        advice=advice(figures, recorder.symptoms, engine.limits),
    )


def _warm_up(request: Request) -> Request:
    beginning = request.prompt_token_ids[-16:]
    return replace(request, id="warm-up", prompt_token_ids=beginning, sampling=_WARM_UP)
