"""The command line in this process, on a data directory of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from batchjobs.cli import cli
from batchjobs.deployment import Deployment
from batchjobs.finalize import finalize
from tests.support.jobs import complete_all, open_deployment, request_line, start_job


def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
    """What a command ends with. An exception that got out is a failure of the test."""
    result = CliRunner(env={"COLUMNS": "80"}).invoke(
        cli, arguments, input=stdin, prog_name="batchjobs"
    )
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def run_json(*arguments: str, stdin: str | bytes | None = None) -> Any:
    return json.loads(run(*arguments, "--json", stdin=stdin).stdout)


def finished_job(home: Path, lines: int = 3, *, failed: tuple[int, ...] = ()) -> str:
    """A job that ended with results for all lines; those numbered in `failed` are errors."""
    with open_deployment(home) as deployment:
        job_id = waiting_job(deployment, lines)
        complete_all(deployment, job_id, failed=failed)
        finalize(deployment, job_id)
    return job_id


def waiting_job(deployment: Deployment, lines: int = 3, **options: Any) -> str:
    """A job in progress that nobody works on."""
    return start_job(
        deployment, [request_line(f"line-{number + 1}") for number in range(lines)], **options
    )
