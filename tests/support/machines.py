"""Programs run as on another processor, or on another OpenMP runtime."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

AVX2 = {
    "NUMBA_CPU_NAME": "haswell",
    "NUMBA_CPU_FEATURES": "+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+popcnt,+sse4.1,+sse4.2",
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
"""Environment in which Numba, torch, oneDNN and MKL compute as on a CPU without AVX-512."""


def run_apart(module: str, *arguments: str, **variables: str) -> Any:
    """What `python -m module` prints as JSON, in a process with these variables as well."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        timeout=250,
        cwd=ROOT,
        env=environment(**variables),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def environment(**variables: str) -> dict[str, str]:
    """Of a process that imports what this one does, with these variables as well."""
    path = os.pathsep.join(dict.fromkeys([str(ROOT), *filter(None, sys.path)]))
    return {**os.environ, "PYTHONPATH": path, **variables}


def llvm_openmp() -> Path:
    """LLVM's OpenMP runtime out of a wheel; skips the test where that is not installed."""
    try:
        found = files("cmeel-libomp") or []
    except PackageNotFoundError:
        found = []
    paths = [Path(str(file.locate())) for file in found if file.name == "libomp.so"]
    if not paths:
        pytest.skip("no LLVM OpenMP: the package cmeel-libomp of the extra `test` has none here")
    return paths[0]
