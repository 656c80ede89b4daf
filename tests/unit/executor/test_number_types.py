"""Which types are chosen, by what is stored, asked for and multiplied fast."""

from __future__ import annotations

import pytest
import torch

from executor import number_types
from executor.number_types import cpu_types, cuda_types

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16


@pytest.mark.parametrize(
    ("asked", "stored", "tiles", "weights", "products", "reason"),
    [
        (None, F32, True, F32, F32, "the weights are stored in float32"),
        (None, None, True, F32, F32, "the weights are stored in float32"),
        (None, BF16, True, BF16, BF16, "stored in bfloat16, which this CPU multiplies with AMX"),
        (None, BF16, False, BF16, F32, "stored in bfloat16, and are widened as they are read"),
        (None, F16, True, F16, F32, "stored in float16, and are widened as they are read"),
        (F32, BF16, False, BF16, F32, "asked for, and the weights are kept in bfloat16 as stored"),
        (F32, BF16, True, BF16, F32, "; slower than bfloat16, which this CPU multiplies with AMX"),
        (F32, F32, True, F32, F32, "asked for"),
        (BF16, F32, True, BF16, BF16, "asked for, which this CPU multiplies with AMX"),
        (BF16, F32, False, BF16, F32, "asked for, and are widened as they are read"),
        (F16, BF16, True, F16, F32, "asked for, and are widened as they are read"),
    ],
)
def test_types_on_a_cpu(
    asked: torch.dtype | None,
    stored: torch.dtype | None,
    tiles: bool,
    weights: torch.dtype,
    products: torch.dtype,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(number_types, "multiplies_on_tiles", lambda: tiles)
    types = cpu_types(asked, stored)
    assert (types.weights, types.products, types.activations) == (weights, products, F32)
    assert types.reason.endswith(reason)


def test_types_on_cuda_are_one() -> None:
    types = cuda_types(None)
    assert {types.weights, types.products, types.activations, types.cache} == {BF16}
    assert cuda_types(F16).described == "float16 (asked for)"


def test_types_are_described_in_one_line() -> None:
    types = cpu_types(F16, F32)
    assert types.described == (
        "float16 weights, float32 products (asked for, and are widened as they are read)"
    )
