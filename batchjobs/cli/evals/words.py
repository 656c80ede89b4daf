"""Runs as a person reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from batchjobs.cli.exits import Exit
from batchjobs.cli.render import columns, moment, plain, print_json, print_table
from batchjobs.evals.runs import jobs_of
from batchjobs.evals.states import Purpose, RunState
from batchjobs.evals.tables import EvalRun
from batchjobs.evals.tally import missing_words, shown_score
from batchjobs.evals.wire import run_object

if TYPE_CHECKING:
    from rich.table import Table

TEXT_CHARS = 300


def run_facts(run: EvalRun) -> Iterator[tuple[str, str]]:
    """What there is to say of a run, a fact a row."""
    yield "run", run.id
    yield "suite", plain(run.suite)
    yield "model", plain(run.model)
    yield "state", str(run.state)
    if run.purpose != Purpose.RUN:
        of = "" if run.confirms is None else f" of {run.confirms}"
        yield "purpose", f"{run.purpose}{of}"
    if run.rescores is not None:
        yield "answers", f"those of {run.rescores}, scored again"
    if run.reason:
        yield "reason", plain(run.reason)
    yield (
        "items",
        f"{run.items:,}" + ("" if run.samples == run.items else f", {run.samples:,} answers"),
    )
    if run.prompt_tokens:
        yield "tokens", f"{run.prompt_tokens:,} in, {run.completion_tokens:,} out"
    yield "created", moment(run.created_at.timestamp())
    if jobs := jobs_of(run):
        yield "jobs", ", ".join(jobs)
    if run.verdict is not None:
        yield "verdict", plain(run.verdict["sentence"])


def fact_table(rows: Iterable[tuple[str, str]]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, value)
    return table


def score_rows(scores: dict[str, Any], deciding: str) -> Iterator[Sequence[str]]:
    """A row a metric; the deciding one is marked."""
    for metric, found in scores.items():
        mark = " *" if metric == deciding else ""
        yield (f"{plain(metric)}{mark}", *_cells(found))


def tag_rows(found: dict[str, Any]) -> Iterator[Sequence[str]]:
    for tag, by in found["tags"].items():
        yield (plain(tag), *_cells(by))


def _cells(found: dict[str, Any]) -> tuple[str, str, str, str]:
    interval = found.get("interval")
    shown = "" if not interval else f"[{shown_score(interval[0])}, {shown_score(interval[1])}]"
    missing = missing_words(found["missing"])
    return shown_score(found["mean"]), shown, f"{found['scored']:,}", missing or "–"


def print_scores(run: EvalRun) -> None:
    if run.scores is None:
        return
    rows = list(score_rows(run.scores, run.metric))
    print_table(columns("METRIC", "SCORE", "95 %", "SCORED", "NOT ANSWERED", rows=rows))


def baseline_words(suite: str, model: str, count: int) -> str:
    runs = "this run" if count == 1 else f"these {count} runs"
    return f"The baseline of {plain(suite)} on {plain(model)} is now {runs}."


def print_run(run: EvalRun) -> None:
    """What a command that saw a run to its end says of it."""
    click.echo(f"{run.id}  {plain(run.suite)} on {plain(run.model)}: {run.state}")
    if run.reason:
        click.echo(f"  {plain(run.reason)}")
    print_scores(run)
    if run.verdict is not None:
        click.echo(f"verdict: {plain(run.verdict['sentence'])}")


def conclude(runs: Sequence[EvalRun], *, as_json: bool) -> Exit:
    """Print runs that a command waited for; its exit code."""
    if as_json:
        objects = [run_object(run) for run in runs]
        print_json(objects[0] if len(objects) == 1 else objects)
    else:
        for run in runs:
            print_run(run)
    return exit_of(runs)


def exit_of(runs: Sequence[EvalRun]) -> Exit:
    """What a command that waited for these runs ends with: the worst of what it saw."""
    codes = {_exit_of(run) for run in runs}
    for code in (Exit.WORSE, Exit.ERROR, Exit.NO_VERDICT):
        if code in codes:
            return code
    return Exit.DONE


def _exit_of(run: EvalRun) -> Exit:
    if run.state == RunState.FAILED:
        return Exit.ERROR
    match run.word:
        case "worse":
            return Exit.WORSE
        case "no verdict":
            return Exit.NO_VERDICT
    return Exit.DONE
