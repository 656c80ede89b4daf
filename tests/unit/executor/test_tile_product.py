"""Products on AMX tiles against torch's over the same rounded numbers."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import linear, silu

from executor import tile_product
from executor.product import interleaved
from executor.tile_product import TilePanels, fits_tiles, multiplies_on_tiles

pytestmark = pytest.mark.skipif(not multiplies_on_tiles(), reason="this CPU has no AMX")

ROWS = (0, 1, 2, 15, 16, 17, 31, 32, 33, 48, 100, 301)


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(("columns", "inner"), [(32, 32), (96, 64), (160, 576)])
def test_product_equals_torch(columns: int, inner: int, biased: bool) -> None:
    weight = numbers(columns, inner).bfloat16()
    bias = numbers(columns) if biased else None
    panels = TilePanels(weight, bias=bias)
    for rows in ROWS:
        given = numbers(1, rows, inner)
        added = None if bias is None else bias.double()
        expected = linear(given.bfloat16().double(), weight.double(), added)
        torch.testing.assert_close(
            panels.multiply(given), expected.float(), atol=inner * 1e-6, rtol=1e-5
        )


@pytest.mark.parametrize("biased", [True, False])
def test_gated_product_equals_torch(biased: bool) -> None:
    gate, up = (numbers(64, 96 + n).narrow(1, 0, 96).bfloat16() for n in range(2))
    biases = [numbers(64 + n)[:64] * biased for n in range(2)]
    panels = TilePanels(gate, up, bias=interleaved(*biases) if biased else None)
    for rows in ROWS:
        given = numbers(rows, 96)
        halves = [
            linear(given.bfloat16().float(), weight.float(), bias)
            for weight, bias in zip((gate, up), biases, strict=True)
        ]
        torch.testing.assert_close(
            panels.multiply(given), silu(halves[0]) * halves[1], atol=2e-4, rtol=1e-5
        )


def test_rows_are_rounded_to_the_nearest_even() -> None:
    tie, above = 1 + 2**-8, 1 + 2**-8 + 2**-20
    panels = TilePanels(torch.eye(32).bfloat16())
    given = torch.tensor([[tie, above, -tie, 3.0] + [0.0] * 28])
    torch.testing.assert_close(panels.multiply(given)[0, :4], given[0, :4].bfloat16().float())


def test_a_row_is_the_same_in_any_company() -> None:
    panels, given = TilePanels(numbers(64, 192).bfloat16()), numbers(100, 192)
    together = panels.multiply(given)
    for first, last in ((0, 1), (3, 16), (5, 33), (41, 100)):
        assert torch.equal(panels.multiply(given[first:last]), together[first:last])


def test_rows_in_several_chunks_equal_rows_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    panels, given = TilePanels(numbers(64, 32).bfloat16(), bias=numbers(64)), numbers(131, 32)
    together = panels.multiply(given)
    monkeypatch.setattr(tile_product, "_CHUNK_BYTES", 2048)
    assert torch.equal(panels.multiply(given), together)


def test_a_row_that_is_not_a_number_stays_alone() -> None:
    panels, given = TilePanels(numbers(32, 64).bfloat16()), numbers(20, 64)
    expected = panels.multiply(given)
    given[3] = torch.nan
    answer = panels.multiply(given)
    assert answer[3].isnan().all()
    assert torch.equal(answer[[2, 4]], expected[[2, 4]])


def test_what_the_kernel_is_not_made_for_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fits_tiles(numbers(32, 32).bfloat16())
    assert not fits_tiles(numbers(32, 32))
    assert not fits_tiles(numbers(32, 48).bfloat16())
    assert not fits_tiles(numbers(48, 32).bfloat16())
    monkeypatch.setattr(tile_product, "can_use_tiles", lambda: False)
    assert not fits_tiles(numbers(32, 32).bfloat16())
