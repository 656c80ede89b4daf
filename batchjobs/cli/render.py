"""Values → what a terminal shows. Words of users and models are made harmless first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.table import Table

    from batchjobs.cli.view import JobView

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


def job_table(view: JobView, *, location_of: dict[str, str]) -> Table:
    """What there is to say of one job, a fact a row. `location_of`: file id → path."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _facts(view, location_of):
        table.add_row(name, value)
    return table


def _facts(view: JobView, location_of: dict[str, str]) -> Iterable[tuple[str, str]]:
    job, tally = view.job, view.tally
    yield "job", job.id
    yield "status", str(job.status)
    yield "endpoint", job.endpoint
    if job.models:
        yield "models", ", ".join(plain(name) for name in job.models)
    yield "requests", line_counts(view)
    if tally.prompt_tokens:
        yield "tokens", f"{tally.prompt_tokens:,} in, {tally.completion_tokens:,} out"
    yield "created", moment(job.created_at)
    if not view.is_terminal:
        yield "expires", moment(job.expires_at)
        yield from _outlook(view)
    for key, value in (job.job_metadata or {}).items():
        yield "metadata", f"{plain(key)}={plain(value)}"
    for name, file_id in (("output", job.output_file_id), ("errors", job.error_file_id)):
        if file_id is not None:
            yield name, location_of.get(file_id, file_id)
    for sentence in problem_lines(view):
        yield "problem", sentence


def _outlook(view: JobView) -> Iterable[tuple[str, str]]:
    ahead = view.outlook
    if ahead.eta is not None:
        yield "expected", f"about {moment(ahead.eta)}"
    if ahead.at_risk:
        yield "at risk", "yes: it is not expected to end before it expires"
    if ahead.notice is not None:
        yield "notice", plain(ahead.notice)


def line_counts(view: JobView) -> str:
    """For example `3 of 10 done (1 failed)`."""
    text = f"{view.finished_lines:,} of {view.job.total_lines:,} done"
    return f"{text} ({view.tally.failed:,} failed)" if view.tally.failed else text


def problem_lines(view: JobView) -> Iterable[str]:
    """The first things that intake found wrong, a sentence each."""
    for error in view.errors[:SHOWN_ERRORS]:
        where = "the file" if error.line is None else f"line {error.line}"
        yield f"{where}: {plain(error.message)} ({error.code})"
    if len(view.errors) > SHOWN_ERRORS:
        more = len(view.errors) - SHOWN_ERRORS
        yield f"… and {more:,} more: batchjobs status {view.job.id} --json"


def moment(when: datetime) -> str:
    """Local time, to the second."""
    return when.astimezone().strftime("%Y-%m-%d %H:%M:%S")
