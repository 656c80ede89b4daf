"""Linear layers over weights that were brought into the order of a product's kernel at load.

A plain product brings its weight into that order, or strides over it, at every call; with the few
rows of a decode step that costs more than the arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

from executor.product import PackedWeight, Panels, fits, interleaved
from executor.tile_product import TilePanels, fits_tiles
from executor.widening import Widening

EXPECTED_ROWS = 64
"""For how many rows oneDNN chooses the order; any number is computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Of which type packed weights are, and in which they are multiplied."""

    weights: torch.dtype = torch.float32
    products: torch.dtype = torch.float32

    def fits(self, weight: Tensor) -> bool:
        """Whether there is a kernel of ours for this weight [N, K]."""
        return fits(weight) or fits_tiles(weight)

    def pack(
        self, *weights: Tensor, bias: Tensor | None = None, stays: bool = True
    ) -> PackedWeight:
        """Weights that fit, of which two are those of a gate (`Panels`)."""
        given = [weight.detach().to(self.weights) for weight in weights]
        tiles = self.products == torch.bfloat16 and all(map(fits_tiles, given))
        kind = TilePanels if tiles else Panels
        return kind(*given, bias=None if bias is None else bias.detach(), stays=stays)


FLOAT32 = Packing()


class PrepackedLinear(nn.Module):
    """x [..., K] to x @ weight.T + bias [..., N] by oneDNN, which is part of torch; keeps no
    reference to `weight` [N, K]."""

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
    """As `PrepackedLinear`, by a kernel of ours."""

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        packing: Packing = FLOAT32,
        *,
        stays: bool = True,
    ) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.panels = packing.pack(weight, bias=bias, stays=stays)

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

    def __init__(
        self, gate: Weights | nn.Linear, up: Weights | nn.Linear, packing: Packing = FLOAT32
    ) -> None:
        super().__init__()
        half, self.in_features = gate.weight.shape
        self.out_features = 2 * half
        bias = None
        if gate.bias is not None and up.bias is not None:
            bias = interleaved(gate.bias.detach(), up.bias.detach())
        self.panels = packing.pack(gate.weight, up.weight, bias=bias)

    def forward(self, rows: Tensor) -> Tensor:
        return self.panels.multiply(rows)


def packed_linear(
    weight: Tensor, bias: Tensor | None, packing: Packing = FLOAT32, *, stays: bool = True
) -> nn.Module:
    """The fastest layer there is for this weight here. One that does not stay shares no memory
    with those that do."""
    if packing.fits(weight):
        return PanelLinear(weight, bias, packing, stays=stays)
    if can_prepack():
        return PrepackedLinear(weight.float(), None if bias is None else bias.float())
    return plain_linear(weight, bias)


def plain_linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """torch's own layer over a weight of any type, which it computes with in float32."""
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    linear.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        linear.bias = nn.Parameter(bias, requires_grad=False)
    Widening(linear)
    return linear


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


@cache
def can_prepack() -> bool:
    """Whether this torch has oneDNN's operators, and they compute what they should."""
    generator = torch.Generator().manual_seed(0)
    weight, rows = (torch.randn(n, 16, generator=generator) for n in (24, 5))
    try:
        with torch.inference_mode():
            product = PrepackedLinear(weight, None)(rows)
    except (AttributeError, RuntimeError):
        return False
    return bool(torch.allclose(product, nn.functional.linear(rows, weight), rtol=1e-3, atol=1e-3))
