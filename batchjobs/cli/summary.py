"""What a command says of a job that has ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from batchjobs.cli.answers import first_reasons
from batchjobs.cli.delivery import Destinations, locations
from batchjobs.cli.figures import aligned, figure_rows
from batchjobs.cli.render import line_counts, plain, problem_lines

if TYPE_CHECKING:
    from batchjobs.client.base import Client
    from batchjobs.client.batch import Batch
    from batchjobs.worker.progress import ModelReport, RunReport, StepTimes

MODEL_NOT_FOUND = "model_not_found"
_REASON_CHARS = 300
TABLE_FROM_REQUESTS = 5


def summarize(client: Client, batch: Batch, destinations: Destinations) -> Iterator[str]:
    """Status, counts, the first reasons for failures, tokens, and where the results lie."""
    if batch.problems:
        yield f"{batch.id} failed validation: nothing ran."
        yield from (f"  {sentence}" for sentence in problem_lines(batch))
        if any(problem["code"] == MODEL_NOT_FOUND for problem in batch.problems):
            yield "Which models there are: batchjobs models list. Run on one of them: --model NAME"
        return
    yield f"{batch.status}: {line_counts(batch)}"
    for reason in first_reasons(client, batch):
        yield f"  {plain(reason, limit=_REASON_CHARS)}"
    if batch.prompt_tokens:
        yield f"tokens: {batch.prompt_tokens:,} in, {batch.completion_tokens:,} out"
    if batch.is_terminal:
        yield from _places(client, batch, destinations)


def _places(client: Client, batch: Batch, destinations: Destinations) -> Iterator[str]:
    """Of the result files that were not copied anywhere."""
    at = locations(client, batch)
    for name, option, file_id, path in (
        ("results", "-o", batch.output_file_id, destinations.output),
        ("errors", "--errors", batch.error_file_id, destinations.errors),
    ):
        if file_id is not None and path is None:
            yield f"{name}: {at[file_id]}"
            yield f"  copy: batchjobs results {batch.id} {option} FILE"


def report_lines(report: RunReport) -> Iterator[str]:
    """How the engine did with each model that ran: a line, and a table if there was much to do.
    Of one that failed every line, there are no rates."""
    for model in report.models:
        if not model.has_answered:
            yield f"{plain(model.model)}: answered no line, in {model.wall_seconds:,.1f} s"
            continue
        yield _report_line(model)
        if model.figures.requests >= TABLE_FROM_REQUESTS:
            yield from aligned(figure_rows([model.figures]))
            yield from (f"suggestion: {sentence}" for sentence in model.advice)
        if model.profile is not None:
            yield from profile_lines(model.profile)


def profile_lines(profile: StepTimes) -> Iterator[str]:
    """Where the time of the steps went, the greatest part first."""
    yield (
        f"where {profile.wall_seconds:,.1f} s went, in {profile.steps:,} steps of"
        f" {profile.tokens / max(1, profile.steps):,.0f} tokens:"
    )
    parts = sorted(profile.parts, key=lambda part: -part.seconds)
    yield from aligned(
        [
            ("", "share", "a step", "in all"),
            *(
                (
                    part.name,
                    f"{part.share:.1%}",
                    f"{part.step_ms:,.2f} ms",
                    f"{part.seconds:,.2f} s",
                )
                for part in parts
            ),
        ]
    )


def _report_line(report: ModelReport) -> str:
    if not report.generates:
        return (
            f"{plain(report.model)}: {report.tokens_per_second:,.1f} tok/s of prompts"
            f" in {report.wall_seconds:,.1f} s, {report.mean_running:.1f} a step on average"
        )
    return (
        f"{plain(report.model)}: {report.tokens_per_second:,.1f} tok/s generated"
        f" in {report.wall_seconds:,.1f} s, {report.mean_running:.1f} running on average,"
        f" KV cache at most {report.kv_cache_usage_peak:.1%} full,"
        f" {report.preemptions:,} preemptions"
    )
