"""The wheel by itself: what a person has who installs it, away from the checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.support.jobs import open_deployment
from tests.support.page_nights import BASELINE, Night, add_nights, pin

ROOT = Path(__file__).parents[2]
ROOMS = ("batchjobs", "executor", "migrations")
BUILD_SECONDS = 240
COMMAND_SECONDS = 120
_IGNORED = {"__pycache__", ".mypy_cache", ".ruff_cache"}

pytestmark = pytest.mark.slow


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An environment with the wheel; all else that it needs is this environment's."""

    wheel: Path
    program: Path
    folder: Path

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        return {**kept, "HOME": str(self.folder), "BATCHJOBS_HOME": str(self.home)}

    def run(self, *arguments: str) -> str:
        finished = subprocess.run(
            [self.program, *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
        )
        assert finished.returncode == 0, finished.stderr[-4000:]
        return finished.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("wheel")
    _pip("wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    [wheel] = folder.glob("*.whl")
    venv.create(folder / "venv")
    _pip("--python", str(folder / "venv"), "install", "--no-deps", str(wheel))
    [packages] = (folder / "venv").glob("lib/python*/site-packages")
    # Behind its own packages; editable installs, such as of this checkout, are not followed.
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return Installed(wheel=wheel, program=folder / "venv" / "bin" / "batchjobs", folder=folder)


def test_wheel_carries_every_file_that_a_command_reads(installed: Installed) -> None:
    with zipfile.ZipFile(installed.wheel) as wheel:
        names = set(wheel.namelist())
    there = {name.replace("batchjobs/migrations/", "migrations/") for name in names}
    assert _files() - there == set()
    licences = {Path(name).name for name in names if ".dist-info/licenses/" in name}
    assert licences == {"LICENSE", "htmx.LICENSE", "uPlot.LICENSE"}
    rooms = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert rooms == {"batchjobs", "executor"}


def test_installed_wheel_upgrades_serves_and_reports(installed: Installed) -> None:
    assert "is now at revision" in installed.run("db", "upgrade")
    with open_deployment(installed.home) as deployment:
        pin(deployment, add_nights(deployment, BASELINE, items=40))
        [run_id] = add_nights(deployment, [Night(right=0.2)], items=40, seed=3)
    report = installed.folder / "report.html"
    installed.run("evals", "report", run_id, "-o", str(report))
    assert "<svg" in report.read_text()
    with _serving(installed) as client:
        for path in ("/", "/workers", "/schedules", "/evals", f"/evals/runs/{run_id}"):
            page = client.get(path)
            assert page.status_code == 200
            files = re.findall(r'(?:href|src)="(/static/[^"#]+)"', page.text)
            assert len(files) >= 4
            assert {client.get(file).status_code for file in files} == {200}
        assert run_id in client.get(f"/evals/runs/{run_id}/report").text


def _files() -> set[str]:
    """What lies in the rooms that are packed."""
    return {
        path.relative_to(ROOT).as_posix()
        for room in ROOMS
        for path in (ROOT / room).rglob("*")
        if path.is_file() and not _IGNORED & set(path.parts)
    }


@contextmanager
def _serving(installed: Installed) -> Iterator[httpx.Client]:
    server = subprocess.Popen(
        [installed.program, "serve", "--port", "0"],
        cwd=installed.folder,
        env=installed.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    try:
        with httpx.Client(base_url=server.stdout.readline().strip(), timeout=60) as client:
            yield client
    finally:
        server.terminate()
        server.communicate(timeout=COMMAND_SECONDS)


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=BUILD_SECONDS
    )
    assert done.returncode == 0, done.stderr[-4000:]
