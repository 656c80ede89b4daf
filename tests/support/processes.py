"""Processes of ours beside the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[2]


def environment_of(home: Path, settings: Mapping[str, Any]) -> dict[str, str]:
    """This process's, with these settings for a process of ours."""
    named = {f"BATCHJOBS_{name.upper()}": str(value) for name, value in settings.items()}
    return os.environ | {"BATCHJOBS_HOME": str(home)} | named


@contextmanager
def python(
    *arguments: str,
    environment: Mapping[str, str],
    stdout: int | IO[str] | None = subprocess.PIPE,
    stderr: int | IO[str] | None = subprocess.PIPE,
) -> Iterator[subprocess.Popen[str]]:
    """`python ARGUMENTS`, which finds this checkout wherever it runs; it is dead when the context
    ends. A stream that is None is this process's."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        env={**environment, "PYTHONPATH": str(ROOT)},
        stdout=stdout,
        stderr=stderr,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
