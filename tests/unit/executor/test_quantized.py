"""8-bit linear layers against the full ones, and models made of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from executor.build import build_engine
from executor.errors import EngineError
from executor.linear import LinearPart
from executor.loading import Checkpoint
from executor.quantized import Int8Linear, check_can_quantize, quantize
from executor.request import Request, SamplingParams
from executor.settings import EngineSettings
from tests.support.tiny_models import save_tiny, tiny_config


def weight(outputs: int = 48, inputs: int = 32) -> torch.Tensor:
    return torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("shape", [(1, 32), (7, 32), (1, 200, 32)])
def test_product_is_nearly_that_of_the_full_weight(shape: tuple[int, ...], biased: bool) -> None:
    full = weight()
    bias = torch.linspace(-3, 3, 48) if biased else None
    rows = torch.randn(shape, generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        product = Int8Linear(full, bias)(rows)
    expected = torch.nn.functional.linear(rows, full, bias)
    assert product.shape == expected.shape
    assert (product - expected).abs().max() < 0.03 * expected.std()


def test_outliers_of_a_row_leave_its_other_numbers_their_weight() -> None:
    full = weight()
    values, scales = quantize(full)
    rows = torch.randn(4, 32, generator=torch.Generator().manual_seed(2))
    rows[:, 3] = 300
    with torch.inference_mode():
        product = Int8Linear(full, None)(rows)
    expected = rows @ (values * scales).T
    # With one byte a number the steps are 300 / 127 wide.
    assert (product - expected).abs().max() < 0.1


def test_rows_do_not_depend_on_their_company() -> None:
    layer = Int8Linear(weight(), None)
    rows = torch.randn(9, 32, generator=torch.Generator().manual_seed(3))
    rows[4] *= 1000
    with torch.inference_mode():
        together = layer(rows)
        alone = torch.cat([layer(row[None]) for row in rows])
    assert torch.equal(together, alone)


def test_largest_weight_of_each_row_fills_the_byte() -> None:
    values, scales = quantize(torch.tensor([[1.0, -2.0], [0.0, 0.0], [1e-3, 5e-4]]))
    assert values.tolist() == [[64, -127], [0, 0], [127, 64]]
    assert scales[0].item() == pytest.approx(2 / 127)


def test_rows_of_zeros_give_the_bias() -> None:
    with torch.inference_mode():
        product = Int8Linear(weight(), torch.ones(48))(torch.zeros(2, 32))
    assert torch.equal(product, torch.ones(2, 48))


def test_cpu_whose_products_overflow_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = Int8Linear.forward
    monkeypatch.setattr(Int8Linear, "forward", lambda layer, rows: forward(layer, rows) * 0.5)
    with pytest.raises(EngineError, match="needs a CPU with VNNI"):
        check_can_quantize()


def test_engine_of_8_bit_weights_says_how_far_its_logits_are_off(tmp_path: Path) -> None:
    save_tiny(tmp_path, tiny_config("llama"))
    settings = EngineSettings(device="cpu", dtype="float32", quantization="int8")
    ready = build_engine(Checkpoint(source=str(tmp_path)), settings)
    kinds = [type(layer) for layer in ready.engine._model._module.modules()]  # type: ignore[attr-defined]
    assert Int8Linear in kinds
    assert LinearPart in kinds
    assert torch.nn.Linear not in kinds
    assert ready.quantization_error is not None
    assert 0 < ready.quantization_error < 0.5
    sampling = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)
    request = Request(id="r", prompt_token_ids=(5, 6, 7), sampling=sampling)
    [completion] = ready.engine.run([request])
    assert completion.completion_tokens == 5
    full = build_engine(Checkpoint(source=str(tmp_path)), EngineSettings(device="cpu"))
    assert full.quantization_error is None
