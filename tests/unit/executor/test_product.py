"""Our own product against torch's, at every number of rows that has code of its own."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import linear

from executor import product
from executor.compiled import team
from executor.compiled.emit import vector_width
from executor.product import Panels, fits

ROWS = (0, *range(1, 16), 27, 28, 29, 64, 301)


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(("columns", "inner"), [(32, 1), (96, 37), (160, 576)])
def test_product_equals_torch(columns: int, inner: int, biased: bool) -> None:
    weight, bias = numbers(columns, inner), numbers(columns) if biased else None
    panels = Panels(weight, bias=bias)
    for rows in ROWS:
        given = numbers(1, rows, inner)
        expected = linear(given.double(), weight.double(), None if bias is None else bias.double())
        torch.testing.assert_close(
            panels.multiply(given), expected.float(), atol=inner * 1e-6, rtol=1e-5
        )


def test_a_row_is_the_same_in_any_company() -> None:
    panels, given = Panels(numbers(64, 200)), numbers(100, 200)
    together = panels.multiply(given)
    for first, last in ((0, 1), (3, 16), (5, 33), (41, 100)):
        assert torch.equal(panels.multiply(given[first:last]), together[first:last])


def test_rows_in_several_chunks_equal_rows_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    panels, given = Panels(numbers(64, 20), bias=numbers(64)), numbers(131, 20)
    together = panels.multiply(given)
    monkeypatch.setattr(product, "_CHUNK_NUMBERS", 400)
    assert torch.equal(panels.multiply(given), together)


def test_strided_rows_are_taken_as_they_are_seen() -> None:
    panels, given = Panels(numbers(32, 16)), numbers(16, 9)
    assert torch.equal(panels.multiply(given.T), panels.multiply(given.T.contiguous()))


def test_narrow_vectors_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, given = numbers(96, 50), numbers(23, 50)
    expected = Panels(weight).multiply(given)
    monkeypatch.setattr(product, "vector_width", lambda: 8)
    torch.testing.assert_close(Panels(weight).multiply(given), expected)


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("width", [16, 8])
@pytest.mark.parametrize("gated", [False, True])
def test_weight_of_16_bits_gives_the_bits_of_its_float32_copy(
    stored: torch.dtype, width: int, gated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if width > vector_width():
        pytest.skip("this CPU has no vectors of 16")
    monkeypatch.setattr(product, "vector_width", lambda: width)
    weights = [numbers(96, 50 + n).narrow(1, 0, 50).to(stored) for n in range(1 + gated)]
    bias = numbers(96 * len(weights))
    short, full = Panels(*weights, bias=bias), Panels(*[w.float() for w in weights], bias=bias)
    for rows in ROWS:
        given = numbers(rows, 50)
        assert torch.equal(short.multiply(given), full.multiply(given))


def test_what_the_kernel_is_not_made_for_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not fits(numbers(33, 8))
    assert not fits(numbers(32, 8).double())
    monkeypatch.setattr(team, "openmp", lambda: None)
    assert not fits(numbers(32, 8))
