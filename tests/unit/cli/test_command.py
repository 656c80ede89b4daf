from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from batchjobs.cli import cli
from batchjobs.cli.command import explain
from batchjobs.cli.exits import Exit
from batchjobs.errors import (
    BatchJobsError,
    ConflictError,
    Interrupted,
    InvalidFileError,
    InvalidRequestError,
    ModelError,
    NotFoundError,
    RemoteError,
    StoreError,
    UsageError,
)
from tests.support.cli import run


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("It is."), Exit.USAGE),
        (InvalidRequestError("It is."), Exit.USAGE),
        (InvalidFileError("It is."), Exit.INVALID),
        (NotFoundError("It is."), Exit.ERROR),
        (ConflictError("It is."), Exit.ERROR),
        (ModelError("It is."), Exit.ERROR),
        (RemoteError("It is."), Exit.ERROR),
        (StoreError("It is."), Exit.ERROR),
    ],
)
def test_an_error_of_ours_is_its_sentence(error: BatchJobsError, code: Exit) -> None:
    assert explain(error) == ("Error: It is.", code)


def test_being_stopped_is_not_called_an_error() -> None:
    assert explain(Interrupted("Stopped.")) == ("Stopped.", Exit.INTERRUPTED)


def test_an_error_of_the_system_names_the_file() -> None:
    error = OSError(28, "No space left on device", "/data/x")
    assert explain(error) == ("Error: /data/x: No space left on device.", Exit.ERROR)


def test_a_bug_is_one_sentence_too() -> None:
    said, code = explain(KeyError("shard"))
    assert said == "Error: unexpected KeyError: 'shard' (--debug shows where)."
    assert code == Exit.ERROR


@pytest.mark.parametrize("command", ["status", "cancel", "watch", "results", "resume", "retry"])
def test_an_unknown_job_is_an_error(data: Path, command: str) -> None:
    result = run(command, "no-job")
    assert result.exit_code == Exit.ERROR
    url = os.environ.get("BATCHJOBS_URL")
    where = f" (at {url})" if url else ""
    assert result.stderr == f"Error: No batch found with id 'no-job'{where}.\n"


@pytest.mark.parametrize("arguments", [["--debug", "status", "x"], ["status", "x", "--debug"]])
def test_debug_lets_the_traceback_through(home: Path, arguments: list[str]) -> None:
    with pytest.raises(NotFoundError):
        run(*arguments)


def test_debug_can_be_set_in_the_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHJOBS_DEBUG", "1")
    with pytest.raises(NotFoundError):
        run("status", "x")


def test_a_wrong_setting_names_its_variable(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHJOBS_LEASE_SECONDS", "soon")
    result = run("list")
    assert result.exit_code == Exit.USAGE
    assert "BATCHJOBS_LEASE_SECONDS" in result.stderr


def test_a_home_that_cannot_be_used_is_a_wrong_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("BATCHJOBS_HOME", str(tmp_path / "file" / "home"))
    result = run("list")
    assert result.exit_code == Exit.USAGE
    assert re.match(r"Error: The data directory .*home cannot be used", result.stderr)


def test_an_unknown_command_is_wrong_usage() -> None:
    assert run("submitt").exit_code == Exit.USAGE


def test_commands_are_listed_in_the_order_of_a_first_use() -> None:
    assert list(cli.commands)[:2] == ["submit", "resume"]
    assert run("--help").stdout.index("submit ") < run("--help").stdout.index("doctor ")
