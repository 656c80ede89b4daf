"""Linear layers over weights in oneDNN's own order, which is part of torch and needs no compiler.

A plain product brings its weight into that order, or strides over it, at every call; with the few
rows of a decode step that costs more than the arithmetic. Here it is done once, at load.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from executor.product import Panels, fits, interleaved

EXPECTED_ROWS = 64
"""For how many rows oneDNN chooses the order; any number is computed."""


class PrepackedLinear(nn.Module):
    """x [..., K] to x @ weight.T + bias [..., N]; keeps no reference to `weight` [N, K]."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self._bias = None if bias is None else bias.detach().contiguous()
        # No buffer: the opaque tensor has no storage that could be saved, cast or moved.
        self._packed = torch.ops.mkldnn._reorder_linear_weight(
            weight.detach().contiguous(), EXPECTED_ROWS
        )

    def forward(self, rows: Tensor) -> Tensor:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(
            rows, self._packed, self._bias, "none", [], ""
        )
        return product


class PanelLinear(nn.Module):
    """As `PrepackedLinear`, by our own kernel (`product`)."""

    def __init__(self, weight: Tensor, bias: Tensor | None, *, stays: bool = True) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        start = None if bias is None else bias.detach()
        self.panels = Panels(weight.detach(), bias=start, stays=stays)

    def forward(self, rows: Tensor) -> Tensor:
        return self.panels.multiply(rows)


@dataclass(frozen=True, slots=True)
class Weights:
    """Of a linear layer, or of some of its columns: [N, K] and [N]."""

    weight: Tensor
    bias: Tensor | None


class GatedLinear(nn.Module):
    """x [..., K] to silu(x @ gate.T) * (x @ up.T) [..., N]; both weights [N, K] with or without
    biases [N]."""

    def __init__(self, gate: Weights | nn.Linear, up: Weights | nn.Linear) -> None:
        super().__init__()
        half, self.in_features = gate.weight.shape
        self.out_features = 2 * half
        bias = None
        if gate.bias is not None and up.bias is not None:
            bias = interleaved(gate.bias.detach(), up.bias.detach())
        self.panels = Panels(gate.weight.detach(), up.weight.detach(), bias=bias)

    def forward(self, rows: Tensor) -> Tensor:
        return self.panels.multiply(rows)


def packed_linear(
    weight: Tensor, bias: Tensor | None, *, stays: bool = True
) -> PanelLinear | PrepackedLinear:
    """The fastest layer there is for this weight here. One that does not stay shares no memory
    with those that do."""
    if fits(weight):
        return PanelLinear(weight, bias, stays=stays)
    return PrepackedLinear(weight, bias)


class SharedProduct:
    """One product whose columns answer several linear layers that get the same input.

    The first layer that is called with an input computes for all; each of the others finds its
    part ready if it is given the very same tensor, and otherwise starts anew, so that no order
    of calls gives a wrong answer.
    """

    def __init__(self, linear: nn.Module, sizes: list[int]) -> None:
        self.linear = linear
        self._sizes = sizes
        self._rows: Tensor | None = None
        self._parts: dict[int, Tensor] = {}

    def part(self, rows: Tensor, index: int) -> Tensor:
        if rows is not self._rows or index not in self._parts:
            product = self.linear(rows)
            self._parts = dict(enumerate(product.split(self._sizes, dim=-1)))
            self._rows = rows
        part = self._parts.pop(index)
        if not self._parts:
            self._rows = None
        return part


class LinearPart(nn.Module):
    """Stands where one of several merged linear layers was."""

    def __init__(self, shared: SharedProduct, index: int) -> None:
        super().__init__()
        self.shared = shared
        self.index = index

    def forward(self, rows: Tensor) -> Tensor:
        return self.shared.part(rows, self.index)


def can_prepack(dtype: torch.dtype) -> bool:
    """Whether this torch has the operators for `dtype`, and they compute what they should."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(24, 16, generator=generator).to(dtype)
    rows = torch.randn(5, 16, generator=generator).to(dtype)
    try:
        with torch.inference_mode():
            product = PrepackedLinear(weight, None)(rows)
    except (AttributeError, RuntimeError):
        return False
    expected = nn.functional.linear(rows.float(), weight.float())
    return bool(torch.allclose(product.float(), expected, rtol=0.05, atol=0.05))
