"""Results whose bits depend on a request alone, whatever is computed beside it.

A step computes rows of several requests at once, and how many depends on the others. A row's
result is independent of them where every product adds up in one order, where each row attends
alone, and where functions of single numbers give the same bits wherever a number stands in a
tensor. Then neither the cut of a prompt into steps nor what is shared or computed again matters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.utils._python_dispatch import TorchDispatchMode

from executor.attention.base import AttentionOptions
from executor.attention.cpu import CpuAttention
from executor.compiled.emit import vector_width
from executor.device import DevicePlan
from executor.errors import EngineError
from executor.linear import FLOAT32, Packing, PanelLinear
from executor.product import VECTORS
from executor.settings import EngineSettings

_PRODUCT = re.compile(
    r"_?(mm|addmm|bmm|baddbmm|addbmm|matmul|linear|mv|addmv|dot|vdot|inner|grouped_mm"
    r"|linear_pointwise|convolution|conv1d|conv2d|scaled_dot_product_attention)(_.*)?"
)
"""Operators that add up products in an order which may depend on the number of rows."""
_FUNCTION = re.compile(
    "(exp|expm1|log|log1p|softplus|sigmoid|silu|tanh|gelu|elu|mish|sin|cos|erf|pow)_?"
)
"""Operators on single numbers that are not exactly rounded."""
BLOCK_SIZES = 8
_TRIED_ROWS = (1, 2, 3, 5, 8, 13, 31, 64, 65, 127, 257)


class FixedLinear(nn.Module):
    """x [..., K] to x @ weight.T + bias [..., N] for any N, each row by itself; weight [N, K].

    Columns of zeros fill up the last panel.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, packing: Packing = FLOAT32) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        missing = -self.out_features % (VECTORS * vector_width())
        whole = pad(weight.detach(), (0, 0, 0, missing))
        start = None if bias is None else pad(bias.detach(), (0, missing))
        self.panels = packing.pack(whole, bias=start)

    def forward(self, rows: Tensor) -> Tensor:
        product = self.panels.multiply(rows)
        if product.shape[-1] == self.out_features:
            return product
        return product[..., : self.out_features].contiguous()


def fixed_linear(weight: Tensor, bias: Tensor | None, packing: Packing = FLOAT32) -> nn.Module:
    """A layer whose rows do not depend on each other: weight [N, K] and bias [N]."""
    kind = PanelLinear if packing.fits(weight) else FixedLinear
    return kind(weight, bias, packing)


class NoAttention:
    """Attends to nothing, for passes that look at everything else (`hook.AttentionContext`)."""

    kept = None

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions
    ) -> Tensor:
        return value.new_zeros(*query.shape[:2], value.shape[2])


def check_settings(settings: EngineSettings, device: DevicePlan, backend: object) -> None:
    """Raises EngineError where `reproducible` cannot hold with these settings or this device."""
    wrong = None
    if device.device.type != "cpu":
        wrong = f"it is for a CPU, and the device is {device.device}"
    elif settings.quantization is not None:
        wrong = f"it needs full weights, and quantization is {settings.quantization}"
    elif not isinstance(backend, CpuAttention):
        wrong = "it needs the attention backend 'cpu'"
    elif (settings.block_size or BLOCK_SIZES) % BLOCK_SIZES:
        wrong = f"it needs a block size that is a multiple of {BLOCK_SIZES}"
    if wrong is not None:
        raise EngineError(f"reproducible results are not possible: {wrong}.")


@torch.inference_mode()
def check_reproducible(module: nn.Module, run: Callable[[], object], *, most_rows: int) -> None:
    """Check every operator that `run`, a short pass of `module`, uses, for steps up to
    `most_rows` rows.

    Raises:
        EngineError: one of them may give a row other bits in other company, with its name.
    """
    record = _Record()
    with record.modules(), record:
        run()
    for operator, place in record.products:
        raise EngineError(
            f"{type(module).__name__} cannot be computed reproducibly: {place} multiplies by"
            f" torch's '{operator}', whose rounding depends on the number of rows in a step."
            " Leave BATCHJOBS_REPRODUCIBLE off for this model."
        )
    for call in record.functions:
        if not call.is_steady(most_rows):
            raise EngineError(
                f"{type(module).__name__} cannot be computed reproducibly with"
                f" {torch.get_num_threads()} threads: torch's '{call.operator}' of"
                f" {call.width} numbers in {call.place} rounds differently in steps of different"
                " size. Try BATCHJOBS_NUM_THREADS=1, or leave BATCHJOBS_REPRODUCIBLE off."
            )


class FunctionCall:
    """An operator on single numbers, as it was called in `place` for rows of `width`."""

    def __init__(self, function: Any, operator: str, given: Any, place: str) -> None:
        tensor, *self._others = given[0]
        self._function, self._named = function, given[1]
        self.operator, self.place, self.width = operator, place, tensor.shape[-1]

    def is_steady(self, most_rows: int) -> bool:
        """Whether the first rows of many have the bits that they have without the others."""
        generator = torch.Generator().manual_seed(0)
        rows = torch.randn(most_rows, self.width, generator=generator)
        rows = rows.abs() if self.operator.startswith(("log", "pow")) else rows
        expected = self._call(rows)
        counts = (count for count in (*_TRIED_ROWS, most_rows - 1) if 0 < count < most_rows)
        return all(
            torch.equal(self._call(rows[:count]).view(torch.int32), expected[:count])
            for count in counts
        )

    def _call(self, rows: Tensor) -> Tensor:
        values: Tensor = self._function(rows.clone(), *self._others, **self._named)
        return values.view(torch.int32)


class _Record(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the products and functions of a pass, with the module in which each is called."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.products: list[tuple[str, str]] = []
        self.functions: list[FunctionCall] = []
        self._path: list[str] = ["the model"]
        self._seen: set[tuple[str, int]] = set()

    @contextmanager
    def modules(self) -> Iterator[None]:
        """Keeps track of the module that runs."""

        def enter(module: nn.Module, _: Any) -> None:
            self._path.append(type(module).__name__)

        def leave(_: nn.Module, __: Any, ___: Any) -> None:
            self._path.pop()

        hooks = register_module_forward_pre_hook(enter), register_module_forward_hook(leave)
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        self._note(func, args, named)
        return func(*args, **named)

    def _note(self, function: Any, args: Any, named: Any) -> None:
        operator = str(function._schema.name).split("::")[-1]
        tensor = next((each for each in args if isinstance(each, Tensor)), None)
        if tensor is None or tensor.dtype != torch.float32 or not tensor.dim():
            return
        if _PRODUCT.fullmatch(operator) and not _adds_nothing_up(operator, args):
            self.products.append((operator, self._path[-1]))
        elif _FUNCTION.fullmatch(operator) and args and args[0] is tensor:
            width = tensor.shape[-1]
            if (operator, width) not in self._seen:
                self._seen.add((operator, width))
                call = FunctionCall(function, operator, (args, named), self._path[-1])
                self.functions.append(call)


def _adds_nothing_up(operator: str, args: Any) -> bool:
    """Rotary angles are a product of a column and a row: one factor each."""
    return operator in {"bmm", "matmul", "mm"} and bool(args[0].shape[-1] == 1)
