"""Kernels compiled for other processors: objects for all of them, and those for ARM run."""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear, rms_norm, silu

from executor import norm, product
from executor.attention.base import AttentionOptions
from executor.attention.cascade import shared_prefixes
from executor.attention.checking import example, example_options
from executor.attention.kernel import unit_rows
from executor.attention.reference import reference_attention
from executor.attention.units import Cutting, plan_units
from tests.support.cross_codegen import TARGETS
from tests.support.machines import environment

SMALL = ("product", "gated", "norm", "rotary", "writing", "series", "touching", "micro_task",
         "barrier")  # fmt: skip
ATTENTION = ("attention_64", "attention_128", "attention_odd")
_X86 = [name for name, target in TARGETS.items() if target.triple.startswith("x86_64")]
_ARM = [name for name in TARGETS if name not in _X86]
_FORMATS = {"x86_64": b"\x7fELF", "aarch64": b"\x7fELF", "arm64": b"\xcf\xfa\xed\xfe"}
_RUN = "neoverse-n1"


@dataclass(frozen=True, slots=True)
class Kernels:
    """Of one target, in a folder."""

    folder: Path
    symbols: dict[str, str]
    width: int

    def object(self, name: str) -> bytes:
        return (self.folder / f"{name}.o").read_bytes()

    def assembly(self, name: str) -> str:
        return (self.folder / f"{name}.s").read_text()


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Kernels]:
    """Compiles kernels of these names for a target, each once."""
    made: dict[str, Kernels] = {}

    def compile_all(target: str, *names: str) -> Kernels:
        before = made.setdefault(target, Kernels(tmp_path_factory.mktemp(target), {}, 0))
        missing = [name for name in names if name not in before.symbols]
        if missing:
            made[target] = _compiled(target, before, missing)
        return made[target]

    return compile_all


def _compiled(target: str, before: Kernels, names: list[str]) -> Kernels:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.cross_kernels", target, str(before.folder), *names],
        capture_output=True,
        text=True,
        env=environment(),
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout.splitlines()[-1])
    symbols = {name: fact["symbol"] for name, fact in facts["kernels"].items()}
    return Kernels(before.folder, {**before.symbols, **symbols}, facts["width"])


@pytest.mark.parametrize("target", TARGETS)
def test_small_kernels_compile_for_every_processor(
    target: str, kernels: Callable[..., Kernels]
) -> None:
    names = (*SMALL, "eviction") if target in _X86 else SMALL
    _check(target, names, kernels(target, *names))


def test_attention_compiles_for_arm(kernels: Callable[..., Kernels]) -> None:
    _check(_RUN, ATTENTION[:1], kernels(_RUN, *ATTENTION[:1]))


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_attention_compiles_for_every_processor(
    target: str, kernels: Callable[..., Kernels]
) -> None:
    _check(target, ATTENTION, kernels(target, *ATTENTION))


def _check(target: str, names: tuple[str, ...], made: Kernels) -> None:
    machine = TARGETS[target].triple.split("-", maxsplit=1)[0]
    assert made.width == (16 if "avx512" in TARGETS[target].features else 8)
    for name in names:
        assert made.object(name).startswith(_FORMATS[machine]), name
        assembly = made.assembly(name)
        if target in _ARM:
            assert not re.search(r"[%\s][xyz]mm\d|llvm_x86|clflush", assembly), name
        elif made.width == 8:
            assert not re.search(r"zmm\d", assembly), name
        if name in ("product", "gated"):
            _check_product_loop(name, assembly, registers=12 if made.width == 8 else 28)


_MOVED_SUMS = r"(\b[qv]\d+|[xyz]mm\d+)\b.*(Spill|Reload)"


def _check_product_loop(name: str, assembly: str, *, registers: int) -> None:
    """Sums of the largest piece stay in so many vector registers of the target's width: its loop
    stores none of them."""
    blocks = re.split(r"^(?=\.?L?BB\d+_\d+:)", assembly, flags=re.MULTILINE)
    multiplied = [len(re.findall(r"\sfmla|\svfmadd", block)) for block in blocks]
    most = max(multiplied)
    loops = [b for b, count in zip(blocks, multiplied, strict=True) if count == most]
    assert most >= registers, name
    assert not any(re.search(_MOVED_SUMS, block) for block in loops), name


def _machine(made: Kernels, name: str) -> Any:
    pytest.importorskip("unicorn", reason="no emulator: the extra `test` has one for Linux")
    from tests.support.arm import Machine

    return Machine(made.object(name))


def _addresses(machine: Any, **tensors: Tensor) -> dict[str, int]:
    return {name: machine.put(tensor.numpy()) for name, tensor in tensors.items()}


def _numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def _assert_close(answer: Any, expected: Tensor) -> None:
    torch.testing.assert_close(torch.from_numpy(answer.copy()), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["product", "gated"])
def test_products_on_arm_equal_torch(name: str, kernels: Callable[..., Kernels]) -> None:
    made = kernels(_RUN, name)
    machine = _machine(made, name)
    rows, inner, columns, panel = 9, 37, 48, product.VECTORS * made.width
    left, weight, bias = _numbers(rows, inner), _numbers(columns, inner), _numbers(columns)
    answers = columns // 2 if name == "gated" else columns
    arguments = product._Arguments(
        **_addresses(
            machine, left=left, start=bias, product=torch.zeros(rows, answers),
            panels=weight.view(-1, panel, inner).transpose(1, 2),
            counter=torch.zeros(1, dtype=torch.int64),
        ),
        rows=rows, inner=inner, columns=columns, chunk=5,
    )  # fmt: skip
    machine.run(made.symbols[name], arguments)
    expected = linear(left, weight, bias)
    if name == "gated":
        gates, ups = expected.view(rows, -1, 2, made.width).unbind(2)
        expected = (silu(gates) * ups).flatten(1)
    _assert_close(machine.get(arguments.product, (rows, answers)), expected)


def test_normalization_on_arm_equals_torch(kernels: Callable[..., Kernels]) -> None:
    made = kernels(_RUN, "norm")
    machine = _machine(made, "norm")
    rows, added, weight = _numbers(11, 37), _numbers(11, 37).flip(0), _numbers(37)
    arguments = norm._Arguments(
        **_addresses(
            machine, rows=rows, added=added, weight=weight, normal=torch.zeros(11, 37),
            counter=torch.zeros(1, dtype=torch.int64),
        ),
        count=11, size=37, epsilon=1e-5,
    )  # fmt: skip
    machine.run(made.symbols["norm"], arguments)
    _assert_close(machine.get(arguments.rows, (11, 37)), rows + added)
    expected = rms_norm(rows + added, [37], weight, 1e-5)
    _assert_close(machine.get(arguments.normal, (11, 37)), expected)


@pytest.mark.parametrize("which", [0, 1], ids=["plain", "every option"])
def test_attention_on_arm_equals_the_reference(which: int, kernels: Callable[..., Kernels]) -> None:
    made = kernels(_RUN, "attention_64")
    machine = _machine(made, "attention_64")
    query, layer, batch = example(3, 64, 64, 16)
    options = example_options(query)[which]
    cutting = Cutting(most_rows=unit_rows(3), group=3, strip=16, kv_heads=2, threads=2)
    shared = shared_prefixes(batch, 16) if options.window is None else []
    assert bool(shared) == (options.window is None)
    plan = plan_units(batch, options.window, shared, block_size=16, cutting=cutting)
    given = plan.given
    (arrays,) = plan.kept
    for name, array in arrays.items():
        setattr(given, name, machine.put(array))
    _fill(given, machine, query, options)
    given.number_bytes = layer.keys.element_size()
    given.keys, given.values = (machine.put(t.numpy()) for t in (layer.keys, layer.values))
    machine.run(made.symbols["attention_64"], given)
    expected = reference_attention(query, layer, batch, options)
    _assert_close(machine.get(given.output, tuple(expected.shape)), expected)


def _fill(given: Any, machine: Any, query: Tensor, options: AttentionOptions) -> None:
    given.query, given.output = machine.put(query.numpy()), machine.allocate(query.nbytes)
    given.query_row, given.query_head, _ = query.stride()
    given.kv_heads, given.block_size = 2, 16
    given.sinks = 0 if options.sinks is None else machine.put(options.sinks.numpy())
    given.scale, given.softcap = options.scale, options.softcap or 0
    given.counter = machine.put(np.zeros(1, np.int64))
    assert ctypes.sizeof(given) % 8 == 0
