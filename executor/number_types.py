"""In which types numbers are stored and computed with, and why."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from executor.tile_product import multiplies_on_tiles

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberTypes:
    """What an engine stores and computes in. On CPU all sums and activations are float32.

    | field | numbers |
    |---|---|
    | `weights` | of linear layers, as they lie in memory |
    | `products` | as they are multiplied in linear layers; sums have 32 bits |
    | `activations` | everything else a model computes |
    | `cache` | keys and values |
    """

    weights: torch.dtype
    products: torch.dtype
    activations: torch.dtype
    cache: torch.dtype
    reason: str

    @property
    def described(self) -> str:
        """For example `bfloat16 weights, float32 products (…)`."""
        if self.weights == self.products == self.activations:
            return f"{name(self.weights)} ({self.reason})"
        return f"{name(self.weights)} weights, {name(self.products)} products ({self.reason})"


def name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def cuda_types(asked: torch.dtype | None) -> NumberTypes:
    dtype = asked or torch.bfloat16
    reason = "asked for" if asked else "CUDA devices multiply bfloat16 fastest"
    return NumberTypes(weights=dtype, products=dtype, activations=dtype, cache=dtype, reason=reason)


def cpu_types(asked: torch.dtype | None, stored: torch.dtype | None) -> NumberTypes:
    """For a checkpoint whose matrices are stored in this type; None: several, or not known.

    Weights of 16 bits stay so in memory and are widened as they are read, which gives the bits of
    float32 at half the reads; on AMX, bfloat16 is multiplied as it is.
    """
    short = stored if stored in (torch.bfloat16, torch.float16) else None
    if asked == torch.float32:
        kept = f", and the weights are kept in {name(short)} as stored" if short else ""
        if short == torch.bfloat16 and multiplies_on_tiles():
            kept += "; slower than bfloat16, which this CPU multiplies with AMX"
        return _on_cpu(short or torch.float32, torch.float32, f"asked for{kept}")
    if asked is None and short is None:
        return _on_cpu(torch.float32, torch.float32, "the weights are stored in float32")
    weights = asked or short or torch.float32
    why = "asked for" if asked else f"the weights are stored in {name(weights)}"
    if weights == torch.bfloat16 and multiplies_on_tiles():
        return _on_cpu(weights, torch.bfloat16, f"{why}, which this CPU multiplies with AMX")
    return _on_cpu(weights, torch.float32, f"{why}, and are widened as they are read")


def _on_cpu(weights: torch.dtype, products: torch.dtype, reason: str) -> NumberTypes:
    return NumberTypes(
        weights=weights,
        products=products,
        activations=torch.float32,
        cache=products,
        reason=reason,
    )
