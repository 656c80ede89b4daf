"""Intake's promises about large files, measured in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
MEBIBYTE = 1 << 20

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def measure(*, count: int, prompt_bytes: int, model: str = "small") -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        arguments = [f"{folder}/home", str(count), str(prompt_bytes), model]
        finished = subprocess.run(
            [sys.executable, "-m", "tests.support.measured_intake", *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
    assert finished.returncode == 0, finished.stderr
    result: dict[str, Any] = json.loads(finished.stdout)
    return result


def test_the_largest_public_file_is_read_in_seconds_and_little_memory() -> None:
    result = measure(count=50_000, prompt_bytes=3_860)
    assert result["size"] > 195_000_000
    assert (result["status"], result["lines"]) == ("in_progress", 50_000)
    assert result["extra_bytes"] < 50 * MEBIBYTE
    assert result["seconds"] < 10


def test_a_file_of_bad_lines_only_lists_every_one() -> None:
    result = measure(count=50_000, prompt_bytes=10, model="unknown")
    assert (result["status"], result["errors"]) == ("failed", 50_000)
    assert result["extra_bytes"] < 150 * MEBIBYTE


@pytest.mark.slow
def test_a_million_short_lines_pass_when_the_limits_are_lifted() -> None:
    result = measure(count=1_000_000, prompt_bytes=10)
    assert (result["status"], result["lines"]) == ("in_progress", 1_000_000)
    assert result["extra_bytes"] < 50 * MEBIBYTE
