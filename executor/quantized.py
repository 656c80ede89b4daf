"""Linear layers over 8-bit weights, with oneDNN's integer products, which are part of torch.

Weights have a scale for each output column, positions one each, so that what a position gives
does not depend on the others in its step. A number of a position is two bytes, its nearest and
what is left of it, and both are rows of one product: one byte loses too much where a few numbers
are far larger than the rest (the outliers of LLM.int8(), Dettmers et al. 2022). Bytes are
unsigned, around 128, as oneDNN has fast products for these only.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from executor.errors import EngineError

_MIDDLE, _MOST = 128, 127
_LEAST_SCALE = 1e-12


class Int8Linear(nn.Module):
    """x [..., K] to x @ weight.T + bias [..., N] of float32, nearly; keeps no reference to
    `weight` [N, K]."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self._bias = None if bias is None else bias.detach().float().contiguous()
        values, scales = quantize(weight.detach().float())
        self._scales = scales.reshape(-1)
        self._middles = torch.zeros(self.out_features, dtype=torch.int32)
        self._packed = torch.ops.onednn.qlinear_prepack(values, None)

    def forward(self, rows: Tensor) -> Tensor:
        flat = rows.reshape(-1, self.in_features)
        scales = _scales(flat)
        scaled = flat / scales
        nearest = scaled.round()
        rest = scaled.sub_(nearest).mul_(2 * _MOST)
        both = self._product(torch.cat((_bytes(nearest), _bytes(rest))))
        product = both[: len(flat)].add_(both[len(flat) :], alpha=1 / (2 * _MOST)).mul_(scales)
        if self._bias is not None:
            product += self._bias
        return product.view(*rows.shape[:-1], self.out_features)

    def _product(self, values: Tensor) -> Tensor:
        product: Tensor = torch.ops.onednn.qlinear_pointwise(
            values, 1.0, _MIDDLE, self._packed, self._scales, self._middles, None, 1.0, 0,
            torch.float32, "none", [], "",
        )  # fmt: skip
        return product


def _bytes(values: Tensor) -> Tensor:
    """To the nearest: behind the addition, which is in place, all are positive and are cut off."""
    return values.add_(_MIDDLE + 0.5).to(torch.uint8)


def quantize(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Bytes [N, K] int8 and scales [N, 1], the largest of each row being 127."""
    scales = _scales(weight)
    return (weight / scales).round_().to(torch.int8), scales


def _scales(rows: Tensor) -> Tensor:
    return rows.abs().amax(dim=-1, keepdim=True).clamp_min_(_LEAST_SCALE).div_(_MOST)


def check_can_quantize() -> None:
    """Raises EngineError where 8-bit products are not to be had, or not exact.

    CPUs without VNNI add two products in 16 bits, which the largest ones overflow.
    """
    weight = torch.full((16, 64), 127.0)
    rows = torch.full((2, 64), 1.0)
    try:
        with torch.inference_mode():
            product = Int8Linear(weight, None)(rows)
    except (AttributeError, RuntimeError) as error:
        raise EngineError(f"quantization int8 is not to be had in this torch: {error}") from error
    if not torch.allclose(product, rows @ weight.T, rtol=1e-4):
        raise EngineError("quantization int8 needs a CPU with VNNI: here its products overflow.")
