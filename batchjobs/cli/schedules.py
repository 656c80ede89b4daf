"""`batchjobs schedules …`: jobs and eval suites that come back, by cron."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchjobs.cli.command import Command, Group

if TYPE_CHECKING:
    from batchjobs.client.base import Client

Wire = dict[str, Any]


@click.group(cls=Group)
def schedules() -> None:
    """Jobs and eval suites that run by themselves, as cron says.

    `serve`, `beat` and `up` start what is due; with several of them, it is started once.
    """


@schedules.command(
    cls=Command,
    example='batchjobs schedules add nightly --cron "0 2 * * *" --tz Asia/Shanghai'
    " --suite arith.yaml --by 07:00",
)
@click.argument("name")
@click.option("--cron", required=True, help='Five fields of cron, such as "0 2 * * *".')
@click.option("--tz", "zone", default="UTC", show_default=True, help="Whose clock cron goes by.")
@click.option(
    "--suite",
    "suites",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    help="An eval suite; several are judged together.",
)
@click.option(
    "--file",
    "file",
    type=click.Path(exists=True, dir_okay=False),
    help="Requests (JSONL), stored now: later changes of the file change nothing.",
)
@click.option("--model", metavar="NAME", help="Takes the place of every line's, or the suites'.")
@click.option("--by", "deadline", metavar="HH:MM", help="The deadline, by the same clock.")
@click.option("--window", default="24h", show_default=True, help="Without --by, the time for it.")
@click.option(
    "--overlap",
    type=click.Choice(["skip", "queue", "replace"]),
    default="skip",
    show_default=True,
    help="What to do while the last one still runs.",
)
@click.option(
    "--catch-up",
    default="6h",
    show_default=True,
    help="A slot that nobody was there for still runs, if it is found so soon after.",
)
@click.option(
    "--priority",
    type=click.IntRange(-1000, 1000),
    default=0,
    show_default=True,
    help="Of jobs due in the same hour, the greater goes first; not of suites.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the schedule as the API has it.")
def add(
    name: str,
    suites: tuple[str, ...],
    file: str | None,
    overlap: str,
    as_json: bool,
    **rest: Any,
) -> None:
    """Add a schedule: suites, or a file of requests, and when they run."""
    from batchjobs.cli.deployment import open_client
    from batchjobs.cli.render import print_json
    from batchjobs.errors import UsageError
    from batchjobs.schedules.orders import ScheduleOrder
    from batchjobs.schedules.states import Overlap

    if bool(suites) == (file is not None):
        raise UsageError("A schedule has either suites (--suite) or a file (--file): give one.")
    with open_client() as client:
        _check_suites(client, suites, rest["model"])
        file_id, endpoint = (None, None) if file is None else _store(client, file)
        order = ScheduleOrder(
            name=name,
            suites=[str(Path(suite).resolve()) for suite in suites],
            file_id=file_id,
            endpoint=endpoint,
            overlap=Overlap(overlap),
            **rest,
        )
        made = client.schedules.add(order)
    if as_json:
        print_json(made)
        return
    click.echo(f"{name} is added. Next runs:")
    for line in _next_lines(made):
        click.echo(f"  {line}")


@schedules.command("list", cls=Command, example="batchjobs schedules list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def list_schedules(as_json: bool) -> None:
    """List the schedules, with their next and last runs."""
    from batchjobs.cli.deployment import open_client
    from batchjobs.cli.render import columns, plain, print_json, print_table

    with open_client() as client:
        found = client.schedules.index()
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("No schedules yet. Add one with: batchjobs schedules add NAME --cron …")
        return
    rows = [
        (
            plain(each["name"]),
            f"{each['cron']} {each['timezone']}",
            _what(each),
            next(iter(_next_lines(each)), "paused"),
            _last(each["last_run"]),
        )
        for each in found
    ]
    print_table(columns("NAME", "CRON", "RUNS", "NEXT", "LAST", rows=rows))


@schedules.command(cls=Command, example="batchjobs schedules pause nightly")
@click.argument("name")
def pause(name: str) -> None:
    """Start no more slots of a schedule; what runs goes on."""
    from batchjobs.cli.deployment import open_client

    with open_client() as client:
        client.schedules.pause(name)
    click.echo(f"{name} is paused. Go on with: batchjobs schedules resume {name}")


@schedules.command(cls=Command, example="batchjobs schedules resume nightly")
@click.argument("name")
def resume(name: str) -> None:
    """Go on with a paused schedule. Slots of the pause do not run."""
    from batchjobs.cli.deployment import open_client

    with open_client() as client:
        made = client.schedules.resume(name)
    click.echo(f"{name} runs next: {next(iter(_next_lines(made)))}")


@schedules.command(cls=Command, example="batchjobs schedules remove nightly")
@click.argument("name")
def remove(name: str) -> None:
    """Remove a schedule and its history. Its jobs and eval runs stay."""
    from batchjobs.cli.deployment import open_client

    with open_client() as client:
        client.schedules.remove(name)
    click.echo(f"{name} is removed.")


@schedules.command(cls=Command, example="batchjobs schedules run nightly")
@click.argument("name")
def run(name: str) -> None:
    """Run a schedule's work now, paused or not. It is begun within seconds by `serve` or `beat`."""
    from batchjobs.cli.deployment import open_client

    with open_client() as client:
        client.schedules.run(name)
    click.echo(f"{name} is due now. See: batchjobs schedules history {name}")


@schedules.command(cls=Command, example="batchjobs schedules history nightly")
@click.argument("name")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True)
@click.option("--after", metavar="SLOT", help="Go on behind this slot.")
@click.option("--json", "as_json", is_flag=True, help="Print a page as the API has it.")
def history(name: str, limit: int, after: str | None, as_json: bool) -> None:
    """What became of a schedule's slots, the newest first."""
    from batchjobs.cli.deployment import open_client
    from batchjobs.cli.render import columns, moment, plain, print_json, print_table

    with open_client() as client:
        page = client.schedules.history(name, limit=limit, after=after)
    if as_json:
        print_json(page)
        return
    if not page["data"]:
        click.echo(f"{name} has not been due yet.")
        return
    rows = [
        (
            moment(slot["slot_at"]),
            slot["status"] + (" (run now)" if slot["kind"] == "manual" else ""),
            plain(_result(slot)),
        )
        for slot in page["data"]
    ]
    print_table(columns("SLOT", "STATUS", "RESULT", rows=rows))
    if page["has_more"]:
        click.echo(f"More: batchjobs schedules history {name} --after {page['data'][-1]['id']}")


def _check_suites(client: Client, suites: tuple[str, ...], model: str | None) -> None:
    """A mistake in a suite is found now, and not at two in the morning."""
    if client.deployment is None or not suites:
        return
    from batchjobs.evals.starting import check_suite
    from batchjobs.evals.suite_file import read_suite
    from batchjobs.evals.workplace import Workplace

    place = Workplace(deployment=client.deployment, client=client)
    for suite in suites:
        check_suite(place, read_suite(Path(suite)), model)


def _store(client: Client, path: str) -> tuple[str, str]:
    """The id of the file that is stored now, and its endpoint."""
    from batchjobs.cli.source import find_endpoint, name_of, open_source
    from batchjobs.settings import Settings

    with open_source(path) as stream:
        endpoint = find_endpoint(stream, Settings.load().max_line_bytes)
        return client.schedules.store(stream, name_of(path)), endpoint


def _next_lines(schedule: Wire) -> list[str]:
    from batchjobs.cli.render import moment

    return [
        each["local"].replace("T", " ")[:16]
        + f" {schedule['timezone']} ({moment(each['at'])} here)"
        + (f", as {each['note']}" if each["note"] else "")
        for each in schedule["next_runs"]
    ]


def _what(schedule: Wire) -> str:
    from batchjobs.cli.render import plain

    if schedule["suites"]:
        return plain(", ".join(Path(suite).name for suite in schedule["suites"]))
    return f"{schedule['input_file_id']}"


def _last(slot: Wire | None) -> str:
    from batchjobs.cli.render import moment, plain

    if slot is None:
        return "–"
    return plain(f"{moment(slot['slot_at'])} {slot['status']} {_result(slot)}", limit=90)


def _result(slot: Wire) -> str:
    """Verdicts, or the job, or why there is neither."""
    runs = [f"{Path(run['suite']).name}: {run['verdict'] or run['id']}" for run in slot["runs"]]
    return "; ".join(word for word in [*runs, slot["batch_id"], slot["reason"]] if word)
