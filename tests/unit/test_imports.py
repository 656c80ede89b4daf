"""Which room may import which."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = {"torch", "transformers"}
LIGHT_ROOMS = (
    "batchjobs.api",
    "batchjobs.cli",
    "batchjobs.client",
    "batchjobs.evals",
    "batchjobs.queue",
    "batchjobs.store",
)

PLAIN = {"executor.request", "executor.prompts", "executor.characters"}
"""What endpoints may know of the executor: values, and what needs nothing."""


def modules(package: str) -> Iterator[tuple[str, Path]]:
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts).removesuffix(".__init__"), path


def imported(path: Path) -> set[str]:
    """Every module that the file imports, also inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found.add(node.module or "")
    return found


def may_import(module: str, name: str) -> bool:
    """Whether a module of batchjobs may import `name` of the executor."""
    if module.startswith("batchjobs.worker."):
        return True
    return module.startswith("batchjobs.endpoints.") and name in PLAIN


def test_the_executor_knows_nothing_of_the_service() -> None:
    wrong = [
        (module, name)
        for module, path in modules("executor")
        for name in imported(path)
        if name.split(".")[0] == "batchjobs"
    ]
    assert wrong == []


def test_only_workers_and_endpoints_know_the_executor() -> None:
    wrong = [
        (module, name)
        for module, path in modules("batchjobs")
        for name in imported(path)
        if name.split(".")[0] == "executor" and not may_import(module, name)
    ]
    assert wrong == []


def test_light_rooms_name_no_heavy_package() -> None:
    wrong = [
        (module, name)
        for module, path in modules("batchjobs")
        for name in imported(path)
        if module.startswith(LIGHT_ROOMS) and name.split(".")[0] in HEAVY
    ]
    assert wrong == []


@pytest.mark.parametrize("room", [*LIGHT_ROOMS, "batchjobs.worker.runner", "batchjobs.intake"])
def test_importing_a_room_loads_no_heavy_package(room: str) -> None:
    names = [module for module, _ in modules("batchjobs") if f"{module}.".startswith(f"{room}.")]
    program = f"import sys, {', '.join(names)}\nprint(sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == "[]\n"
