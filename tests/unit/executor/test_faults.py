"""Kernels that cannot be compiled or answer wrong are left out, and the answers stay right."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest
import torch
from torch.nn.functional import linear

from executor import product
from executor.attention import cpu
from executor.attention.base import AttentionOptions
from executor.attention.reference import reference_attention
from executor.compiled import faults, report
from executor.compiled.processor import has_feature
from executor.linear import PanelLinear, PrepackedLinear, packed_linear
from tests.support.machines import AVX2, environment
from tests.unit.executor.test_attention import Sizes, make_batch


@numba.cfunc("void(int64)")  # type: ignore[untyped-decorator]
def do_nothing(given: int) -> None:
    pass


@pytest.fixture(autouse=True)
def _unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kernel is checked anew, and as before afterwards."""
    monkeypatch.setattr(faults, "_verdicts", {})


def cannot_compile(*_: object, **__: object) -> int:
    raise RuntimeError("LLVM knows no such\n  instruction")


@pytest.mark.parametrize("kernel", [cannot_compile, lambda *_, **__: do_nothing.address])
def test_products_go_through_torch_without_a_working_kernel(
    kernel: object, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(product, "product_kernel", kernel)
    weight, rows = torch.randn(2, 64, 64, generator=torch.Generator().manual_seed(0))
    with caplog.at_level(logging.WARNING):
        layers = [packed_linear(weight, None) for _ in range(2)]
    assert [type(layer) for layer in layers] == [PrepackedLinear] * 2
    torch.testing.assert_close(layers[0](rows), linear(rows, weight), atol=1e-4, rtol=1e-4)
    (record,) = caplog.records
    assert "product of float32 weights" in record.message
    assert "torch's products instead" in record.message


def test_products_are_compiled_where_they_work() -> None:
    assert type(packed_linear(torch.ones(64, 64), None)) is PanelLinear
    assert faults.faults() == ()


@pytest.mark.parametrize("kernel", [cannot_compile, lambda *_: do_nothing.address])
def test_attention_goes_through_torch_without_a_working_kernel(
    kernel: object, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cpu, "attention_kernel", kernel)
    batch, layer, query = make_batch([(3, 1), (0, 20)], Sizes(key=8, value=16, block=8))
    for cache in (layer.keys, layer.values):
        cache.nan_to_num_()
    options = AttentionOptions(scale=0.3)
    expected = reference_attention(query, layer, batch, options)
    for _ in range(2):
        answer = cpu.CpuAttention()(query, layer, batch, options)
        torch.testing.assert_close(answer, expected)
    assert len(caplog.records) == 1
    assert "attention" in str(faults.faults()[0])


def test_a_fault_is_one_line_that_says_what_failed_and_what_is_used() -> None:
    assert not faults.works("kernel K", "torch", cannot_compile)
    (fault,) = faults.faults()
    assert str(fault) == (
        "kernel K not used, torch instead (RuntimeError: LLVM knows no such instruction)"
    )
    assert str(fault) in report.summary()


def test_a_check_is_made_once() -> None:
    made: list[int] = []
    assert faults.works("kernel K", "torch", lambda: made.append(1))
    assert faults.works("kernel K", "torch", cannot_compile)
    assert made == [1]


@pytest.mark.parametrize("wrong", [torch.tensor([1.0, 2.001]), torch.tensor([1.0, torch.nan])])
def test_wrong_answers_are_told_from_rounding(wrong: torch.Tensor) -> None:
    expected = torch.tensor([1.0, 2.0])
    faults.expect(expected * (1 + 1e-6), expected)
    with pytest.raises(faults.WrongAnswerError, match="self-check is off by"):
        faults.expect(wrong, expected)


_PRODUCT = """
import torch
from executor.compiled.processor import has_feature
from executor.linear import packed_linear
from executor.compiled.faults import faults
from executor.norm import can_normalize
assert can_normalize()
weight = torch.ones(64, 64)
layer = packed_linear(weight, None)
print(type(layer).__name__, faults(), layer(weight).sum())
"""


def run_copy(folder: Path, **variables: str) -> str:
    """What a product gives with the executor that lies in a folder."""
    path = environment()["PYTHONPATH"].split(":", 1)[1]
    done = subprocess.run(
        [sys.executable, "-c", _PRODUCT],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(PYTHONPATH=f"{folder}:{path}", PYTHONDONTWRITEBYTECODE="1", **variables),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A folder with a copy of the executor that has compiled nothing yet."""
    source = Path(product.__file__).parent
    shutil.copytree(source, tmp_path / "executor", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


_RIGHT = "PanelLinear () tensor(262144.)"


def test_kernels_need_no_folder_that_can_be_written_to(copied: Path) -> None:
    for folder in [copied / "executor", *(copied / "executor").rglob("*/")]:
        (folder / "__pycache__").touch()  # no folder can be made here, not even by root
    nowhere = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR"), "/dev/null/none")
    assert run_copy(copied, **nowhere) == _RIGHT


def test_kernels_that_were_cut_off_on_disk_are_compiled_anew(copied: Path) -> None:
    assert run_copy(copied) == _RIGHT
    kept = list(copied.rglob("*.nb[ic]"))
    assert kept
    for file in kept:
        file.write_bytes(file.read_bytes()[:40])
    assert run_copy(copied) == _RIGHT


@pytest.mark.skipif(not has_feature("avx2"), reason="asks for a lesser x86 processor")
def test_kernels_kept_for_one_processor_are_not_used_on_another(copied: Path) -> None:
    for processors, variables in ((1, {}), (2, AVX2), (2, {})):
        assert run_copy(copied, **variables) == _RIGHT
        assert len(list(copied.rglob("norm._kernel.*.nbc"))) == processors
