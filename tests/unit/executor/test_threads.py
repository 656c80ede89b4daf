"""How long waiting threads spin, as the runtimes themselves say."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.support.machines import environment, llvm_openmp

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="preloads a runtime into torch")

_PROGRAM = """
from executor.threads import yield_when_idle
yield_when_idle()
import torch
torch.ones(1 << 20).exp_()
"""


def settings(**variables: str) -> str:
    """What the runtime that torch computes with says of its settings."""
    ours = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
    kept = {name: value for name, value in environment().items() if name not in ours}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        env={**kept, **variables},
    )
    return done.stderr


def test_threads_of_gnu_openmp_spin_shortly() -> None:
    assert "GOMP_SPINCOUNT = '2000'" in settings(OMP_DISPLAY_ENV="verbose")


def test_threads_of_llvm_openmp_spin_shortly() -> None:
    shown = settings(LD_PRELOAD=str(llvm_openmp()), KMP_SETTINGS="1")
    assert re.search(r"KMP_BLOCKTIME=1(ms)?$", shown, re.MULTILINE)


def test_the_environment_has_the_last_word() -> None:
    shown = settings(LD_PRELOAD=str(llvm_openmp()), KMP_SETTINGS="1", OMP_WAIT_POLICY="ACTIVE")
    assert not re.search(r"KMP_BLOCKTIME=1(ms)?$", shown, re.MULTILINE)
