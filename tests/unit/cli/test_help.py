"""Help texts are kept in tests/golden/help; BATCHJOBS_UPDATE_GOLDEN=1 writes them anew."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from batchjobs.cli import cli
from batchjobs.cli.command import Command
from tests.support.cli import run

GOLDEN = Path(__file__).parents[2] / "golden" / "help"
HEAVY = ("torch", "transformers", "sqlalchemy", "pydantic", "rich", "tqdm", "numpy", "orjson")


def commands(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, group
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)
        else:
            yield (*path, name), command


COMMANDS = dict(commands(cli))


@pytest.mark.parametrize("path", COMMANDS, ids="-".join)
def test_help_is_as_kept(path: tuple[str, ...]) -> None:
    golden = GOLDEN / f"{'-'.join(('batchjobs', *path))}.txt"
    text = run(*path, "--help").stdout
    if os.environ.get("BATCHJOBS_UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


def test_no_help_is_kept_of_a_command_that_is_gone() -> None:
    names = {f"{'-'.join(('batchjobs', *path))}.txt" for path in COMMANDS}
    assert {golden.name for golden in GOLDEN.iterdir()} == names


@pytest.mark.parametrize(
    ("path", "command"),
    [(path, command) for path, command in COMMANDS.items() if isinstance(command, Command)],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_help_has_an_example_that_calls_the_command(
    path: tuple[str, ...], command: Command
) -> None:
    _, _, example = (command.epilog or "").partition("Example:\n  ")
    assert example.startswith(" ".join(("batchjobs", *path)))


@pytest.mark.parametrize("arguments", [["--help"], ["submit", "--help"], ["models", "add", "-h"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    program = (
        "import sys\nfrom batchjobs.cli import main\ntry:\n    main()\nfinally:\n"
        f"    print('heavy:', sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
    )
    assert done.stderr == "heavy: []\n"


def test_short_descriptions_are_not_cut_off() -> None:
    assert "...\n" not in run("--help").stdout.partition("Commands:")[2]
