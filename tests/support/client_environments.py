"""Virtual environments for clients whose requirements contradict ours or each other's.

Each is made once, below the user's cache directory under a digest of what it holds, so that a
new version is a new environment. `BATCHJOBS_TEST_CLIENTS_DIR` names another directory.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import platformdirs
from filelock import FileLock

SCRIPTS = Path(__file__).parents[1] / "clients" / "scripts"
INSTALL_SECONDS = 1200
SCRIPT_SECONDS = 240
_READY = "ready"


def environment_python(*requirements: str) -> Path:
    """The interpreter of an environment that holds `requirements` (pinned: name==version)."""
    directory = _directory(requirements)
    python = directory / "bin" / "python"
    directory.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{directory}.lock"):
        if not (directory / _READY).exists():
            shutil.rmtree(directory, ignore_errors=True)
            venv.create(directory, with_pip=True)
            _install(python, requirements)
            (directory / _READY).touch()
    return python


def run_script(name: str, url: str, work: Path, *, python: Path | None = None) -> dict[str, Any]:
    """What the script `name` prints on its last line, as JSON.

    It finds the API where each client looks for it, and `work` is its home.
    """
    finished = subprocess.run(
        [python or sys.executable, SCRIPTS / f"{name}.py"],
        cwd=work,
        env=_variables(url, work),
        capture_output=True,
        text=True,
        timeout=SCRIPT_SECONDS,
    )
    assert finished.returncode == 0, f"{finished.stdout[-4000:]}\n{finished.stderr[-8000:]}"
    report: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    return report


def _directory(requirements: tuple[str, ...]) -> Path:
    wanted = json.dumps([sys.version, sys.base_prefix, *requirements])
    digest = hashlib.sha256(wanted.encode()).hexdigest()[:16]
    name = requirements[0].partition("==")[0]
    root = os.environ.get("BATCHJOBS_TEST_CLIENTS_DIR") or (
        platformdirs.user_cache_path("batchjobs") / "clients"
    )
    return Path(root) / f"{name}-{digest}"


def _install(python: Path, requirements: tuple[str, ...]) -> None:
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    installed = subprocess.run(
        [*command, *requirements], capture_output=True, text=True, timeout=INSTALL_SECONDS
    )
    assert installed.returncode == 0, f"{installed.stdout[-4000:]}\n{installed.stderr[-4000:]}"


def _variables(url: str, work: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    return kept | {
        "HOME": str(work),
        "OPENAI_BASE_URL": url,
        "OPENAI_API_KEY": "none",
        "PYTHONUTF8": "1",
    }
