"""Whole models as on other machines: without AVX-512, and on LLVM's OpenMP."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from executor.compiled.processor import has_feature
from tests.support.machines import AVX2, environment, llvm_openmp, run_apart
from tests.support.tiny_models import save_tiny, tiny_config

pytestmark = pytest.mark.skipif(not has_feature("avx2"), reason="these are lesser x86 processors")

_KERNELS = ("test_kernel.py", "test_product.py", "test_fusing.py", "test_cascade.py")
_SIZES = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 96,
}
"""Which all kernels are made for, at any width."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama")
    save_tiny(folder, tiny_config("llama", **_SIZES))
    return folder


@pytest.fixture(scope="module")
def here(checkpoint: Path) -> Any:
    """What this machine answers."""
    return run_apart("tests.support.tiny_run", str(checkpoint))


def test_answers_without_avx512_are_the_same(checkpoint: Path, here: Any) -> None:
    masked = run_apart("tests.support.tiny_run", str(checkpoint), **AVX2)
    assert masked["width"] == 8
    assert masked["direct_layers"] == 3
    assert masked["faults"] == []
    assert masked["tokens"] == here["tokens"]


@pytest.mark.skipif(sys.platform != "linux", reason="preloads a runtime into torch")
def test_answers_on_llvms_openmp_are_the_same(checkpoint: Path, here: Any) -> None:
    other = run_apart("tests.support.tiny_run", str(checkpoint), LD_PRELOAD=str(llvm_openmp()))
    assert other["runtime"] == "LLVM OpenMP"
    assert other["direct_layers"] == 3
    assert other["faults"] == []
    assert other["tokens"] == here["tokens"]


def test_a_cpu_without_fused_multiply_add_computes_by_torch(checkpoint: Path, here: Any) -> None:
    features = {"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": "+sse2"}
    old = run_apart("tests.support.tiny_run", str(checkpoint), **features)
    assert old["direct_layers"] == 0
    assert "fused multiply-add" in old["faults"][0]
    assert old["tokens"] == here["tokens"]


@pytest.mark.slow
@pytest.mark.model
def test_the_default_model_answers_the_same_without_avx512(default_model: Path) -> None:
    here, masked = (
        run_apart("tests.support.tiny_run", str(default_model), **mask) for mask in ({}, AVX2)
    )
    assert masked["width"] == 8
    assert masked["direct_layers"] == 30
    assert masked["tokens"] == here["tokens"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kernels_equal_their_references_without_avx512() -> None:
    folder = Path(__file__).parent
    files = [str(folder / name) for name in _KERNELS]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
        capture_output=True,
        text=True,
        env=environment(**AVX2),
    )
    assert done.returncode == 0, done.stdout
