"""What a command says of a job that has ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from batchjobs.cli.answers import first_reasons
from batchjobs.cli.delivery import Destinations, locations
from batchjobs.cli.render import line_counts, plain, problem_lines

if TYPE_CHECKING:
    from batchjobs.cli.view import JobView
    from batchjobs.deployment import Deployment
    from batchjobs.worker.progress import ModelReport, RunReport

MODEL_NOT_FOUND = "model_not_found"
_REASON_CHARS = 300


def summarize(deployment: Deployment, view: JobView, destinations: Destinations) -> Iterator[str]:
    """Status, counts, the first reasons for failures, tokens, and where the results lie."""
    job, tally = view.job, view.tally
    if view.errors:
        yield f"{job.id} failed validation: nothing ran."
        yield from (f"  {sentence}" for sentence in problem_lines(view))
        if any(error.code == MODEL_NOT_FOUND for error in view.errors):
            yield "Which models there are: batchjobs models list. Run on one of them: --model NAME"
        return
    yield f"{job.status}: {line_counts(view)}"
    for reason in first_reasons(deployment, job):
        yield f"  {plain(reason, limit=_REASON_CHARS)}"
    if tally.prompt_tokens:
        yield f"tokens: {tally.prompt_tokens:,} in, {tally.completion_tokens:,} out"
    if view.is_terminal:
        yield from _places(deployment, view, destinations)


def _places(deployment: Deployment, view: JobView, destinations: Destinations) -> Iterator[str]:
    """Of the result files that were not copied anywhere."""
    job, at = view.job, locations(deployment, view.job)
    for name, option, file_id, path in (
        ("results", "-o", job.output_file_id, destinations.output),
        ("errors", "--errors", job.error_file_id, destinations.errors),
    ):
        if file_id is not None and path is None:
            yield f"{name}: {at[file_id]}"
            yield f"  copy: batchjobs results {job.id} {option} FILE"


def report_lines(report: RunReport) -> Iterator[str]:
    """How the engine did, a line for each model that ran."""
    return (_report_line(model) for model in report.models)


def _report_line(report: ModelReport) -> str:
    return (
        f"{plain(report.model)}: {report.tokens_per_second:,.1f} tok/s generated"
        f" in {report.wall_seconds:,.1f} s, {report.mean_running:.1f} running on average,"
        f" KV cache at most {report.kv_cache_usage_peak:.1%} full,"
        f" {report.preemptions:,} preemptions"
    )
