"""Rules of CONTRIBUTING.md on what stands where, besides those on imports."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULES = sorted([*ROOT.glob("batchjobs/**/*.py"), *ROOT.glob("executor/**/*.py")])
MAX_LINES = 400
QUERYING = {
    "batchjobs/queue",
    "batchjobs/api_keys.py",
    "batchjobs/catalogue.py",
    "batchjobs/clock.py",
    "batchjobs/db.py",
    "batchjobs/evals",
    "batchjobs/files.py",
    "batchjobs/intake.py",
}


def room(path: Path) -> str:
    """For example `batchjobs/cli` or `batchjobs/db.py`."""
    return "/".join(path.relative_to(ROOT).parts[:2])


def test_queries_stay_in_their_rooms() -> None:
    found = {
        room(path)
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        and node.module == "sqlalchemy"
        and {alias.name for alias in node.names} & {"select", "update", "insert", "delete", "text"}
    }
    assert found <= QUERYING


def test_no_module_is_crowded() -> None:
    sizes = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in MODULES}
    assert {name: lines for name, lines in sizes.items() if lines > MAX_LINES} == {}
