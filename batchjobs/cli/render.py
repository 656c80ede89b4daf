"""Values → what a terminal shows. Words of users and models are made harmless first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.table import Table

    from batchjobs.client.batch import Batch

SHOWN_ERRORS = 10
_PIPE_COLUMNS = 10_000
"""Width of tables that no terminal shows: a path that is cut is no path for a program."""


def plain(words: str, *, limit: int | None = None) -> str:
    """One line without control characters, so that no answer can steer the terminal."""
    line = "".join(letter if letter.isprintable() else " " for letter in words).strip()
    if limit is not None and len(line) > limit:
        return line[: limit - 1] + "…"
    return line


def print_json(value: Any) -> None:
    import orjson

    click.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2))


def print_table(table: Table) -> None:
    import sys

    from rich.console import Console

    width = None if sys.stdout.isatty() else _PIPE_COLUMNS
    Console(width=width, highlight=False, markup=False, emoji=False).print(table)


def columns(*headers: str, rows: Iterable[Sequence[str]]) -> Table:
    """A table with a header; the first column, a name to copy, is never cut."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for number, header in enumerate(headers):
        table.add_column(header, no_wrap=number == 0, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def job_table(batch: Batch, *, location_of: dict[str, str]) -> Table:
    """What there is to say of one job, a fact a row. `location_of`: file id → path."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts(batch, location_of):
        table.add_row(name, value)
    return table


def facts(batch: Batch, location_of: dict[str, str]) -> Iterable[tuple[str, str]]:
    """The rows of `job_table`."""
    yield "job", plain(batch.id)
    yield "status", plain(batch.status)
    yield "endpoint", plain(batch.endpoint)
    if batch.models:
        yield "models", ", ".join(plain(name) for name in batch.models)
    yield "requests", line_counts(batch)
    if batch.prompt_tokens:
        yield "tokens", f"{batch.prompt_tokens:,} in, {batch.completion_tokens:,} out"
    if batch.system_fingerprints:
        yield "computed by", ", ".join(plain(name) for name in batch.system_fingerprints)
    yield "created", moment(batch.created_at)
    if not batch.is_terminal:
        yield from _outlook(batch)
    for key, value in batch.metadata.items():
        yield "metadata", f"{plain(key)}={plain(value)}"
    for name, file_id in (("output", batch.output_file_id), ("errors", batch.error_file_id)):
        if file_id is not None:
            yield name, location_of.get(file_id, file_id)
    for sentence in problem_lines(batch):
        yield "problem", sentence


def _outlook(batch: Batch) -> Iterable[tuple[str, str]]:
    """When it will end, and what stands in the way."""
    if batch.eta is not None:
        yield "expected", moment(batch.eta)
    if batch.expires_at is not None:
        yield "expires", moment(batch.expires_at)
    if late := late_sentence(batch):
        yield "at risk", late
    if batch.notice:
        yield "notice", plain(batch.notice)


def late_sentence(batch: Batch) -> str | None:
    """What is said of a job that is expected to miss its deadline."""
    if not batch.is_at_risk:
        return None
    return (
        "It is expected to miss its deadline: what is not done by then will be listed as expired."
    )


def line_counts(batch: Batch) -> str:
    """For example `3 of 10 done (1 failed)`."""
    text = f"{batch.finished_lines:,} of {batch.total_lines:,} done"
    return f"{text} ({batch.failed_lines:,} failed)" if batch.failed_lines else text


def problem_lines(batch: Batch) -> Iterable[str]:
    """The first things that intake found wrong, a sentence each."""
    for problem in batch.problems[:SHOWN_ERRORS]:
        where = "the file" if problem["line"] is None else f"line {problem['line']}"
        yield f"{where}: {plain(problem['message'])} ({plain(problem['code'])})"
    if len(batch.problems) > SHOWN_ERRORS:
        more = len(batch.problems) - SHOWN_ERRORS
        yield f"… and {more:,} more: batchjobs status {batch.id} --json"


def moment(seconds: float) -> str:
    """Local time of seconds of the epoch."""
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
