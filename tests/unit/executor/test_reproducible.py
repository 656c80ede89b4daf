"""Bits of an answer that depend on its request alone: tiny families in ever other company."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import linear

from executor.errors import EngineError
from executor.forecast import Forecast
from executor.product import VECTORS
from executor.reproducible import (
    FixedLinear,
    FunctionCall,
    check_reproducible,
    fixed_linear,
)
from tests.support.company import (
    COMPANIES,
    PREEMPTING,
    answers,
    build,
    mixed_requests,
    one_by_one,
)
from tests.support.tiny_models import save_tiny, tiny_config

_SIZES = {"hidden_size": 64, "intermediate_size": 96, "head_dim": 16, "num_attention_heads": 4}
_TOKENS = 40
"""So many that answers need another block of 64."""
MODELS: dict[str, dict[str, Any]] = {
    "llama": {**_SIZES, "vocab_size": 128},
    # A head of 131 columns fills no panel.
    "qwen2": {
        **_SIZES,
        "vocab_size": 131,
        "use_sliding_window": True,
        "sliding_window": 20,
        "max_window_layers": 1,
    },
}


def prompts() -> list[tuple[int, ...]]:
    """Of 3 to 90 tokens; half of them begin alike, and two are the same."""
    chance = random.Random(5)
    begin = [chance.randrange(3, 128) for _ in range(70)]
    found = []
    for number in range(22):
        own = [chance.randrange(3, 128) for _ in range(3 + number)]
        found.append(tuple(begin[: 70 if number % 4 else 37] + own if number % 2 else own))
    return [*found, found[1]]


@pytest.fixture(scope="module", params=MODELS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp(request.param)
    save_tiny(path, tiny_config(request.param, **MODELS[request.param]))
    return path


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[str, str]:
    return one_by_one(build(folder), mixed_requests(prompts(), tokens=_TOKENS))


@pytest.mark.parametrize("name", COMPANIES)
def test_no_company_changes_a_bit(name: str, folder: Path, expected: dict[str, str]) -> None:
    requests = mixed_requests(prompts(), tokens=_TOKENS)
    engine = build(folder, **COMPANIES[name])
    assert answers(engine, requests) == expected
    assert answers(engine, requests[::-1]) == expected


def test_neither_does_being_computed_again(
    folder: Path, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Forecast, "fits", lambda forecast, free: free >= 0)
    engine = build(folder, **PREEMPTING, max_model_len=192, kv_cache_memory=6 * 64 * 768)
    assert answers(engine, mixed_requests(prompts(), tokens=_TOKENS)) == expected
    assert engine.engine.metrics.num_preemptions_total > 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_no_company_changes_a_bit_over_weights_of_16_bits(dtype: str, folder: Path) -> None:
    requests = mixed_requests(prompts(), tokens=_TOKENS)[::3]
    alone = one_by_one(build(folder, dtype=dtype), requests)
    assert answers(build(folder, dtype=dtype, max_num_seqs=64), requests) == alone


def test_without_the_setting_company_does_change_bits(
    folder: Path, expected: dict[str, str]
) -> None:
    engine = build(folder, reproducible=False, max_num_seqs=64)
    assert answers(engine, mixed_requests(prompts(), tokens=_TOKENS)) != expected


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"quantization": "int8"}, "quantization is int8"),
        ({"attention_backend": "sdpa"}, "attention backend"),
        ({"block_size": 12}, "block size"),
    ],
)
def test_what_cannot_be_equal_is_refused(
    settings: dict[str, Any], words: str, tmp_path: Path
) -> None:
    save_tiny(tmp_path, tiny_config("llama", **_SIZES))
    with pytest.raises(EngineError, match=words):
        build(tmp_path, **settings)


@pytest.mark.parametrize("family", ["qwen3_moe", "gpt2"])
def test_a_family_with_products_of_its_own_is_refused_by_name(family: str, tmp_path: Path) -> None:
    save_tiny(tmp_path, tiny_config(family, **(_SIZES if family != "gpt2" else {})))
    with pytest.raises(EngineError, match=r"cannot be computed reproducibly: \w+ multiplies"):
        build(tmp_path)


@pytest.mark.parametrize("columns", [3, 50, 64, 129])
def test_a_fixed_product_is_the_product_and_each_row_is_by_itself(columns: int) -> None:
    torch.manual_seed(1)
    weight, bias, rows = torch.randn(columns, 40), torch.randn(columns), torch.randn(33, 40)
    for layer in (FixedLinear(weight, bias), fixed_linear(weight, bias)):
        product = layer(rows)
        torch.testing.assert_close(product, linear(rows, weight, bias))
        assert product.is_contiguous()
        assert all(torch.equal(layer(rows[i : i + 1])[0], product[i]) for i in range(33))
    assert VECTORS * 8 < 129


class _Model(nn.Module):
    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.part(rows)
        return answer


def test_products_of_torch_are_found_with_the_module_that_calls_them() -> None:
    model = _Model(nn.Linear(8, 8))
    with pytest.raises(EngineError, match=r"Linear multiplies by torch's '(linear|addmm)'"):
        check_reproducible(model, lambda: model(torch.ones(2, 8)), most_rows=64)


class _Unsteady(nn.Module):
    """Adds up over rows."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.T.contiguous().T @ torch.eye(rows.shape[-1])


def test_so_are_products_without_a_weight() -> None:
    model = _Model(_Unsteady())
    with pytest.raises(EngineError, match="_Unsteady multiplies"):
        check_reproducible(model, lambda: model(torch.ones(2, 8)), most_rows=64)


def test_exact_operators_and_products_of_one_factor_pass() -> None:
    class Exact(nn.Module):
        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            angles = rows[:, :1] @ rows[:1, :]
            return angles * 2 + rows.sum() - angles.relu()

    model = _Model(Exact())
    check_reproducible(model, lambda: model(torch.ones(2, 8)), most_rows=64)


def test_a_function_is_tried_in_steps_of_many_sizes() -> None:
    def by_size(rows: torch.Tensor) -> torch.Tensor:
        return rows + len(rows)

    given = ((torch.ones(2, 64),), {})
    assert FunctionCall(torch.exp_, "exp_", given, "Gate").is_steady(300)
    assert FunctionCall(torch.neg, "exp", given, "Gate").is_steady(300)
    assert not FunctionCall(by_size, "exp", given, "Gate").is_steady(300)


def test_a_function_that_is_not_steady_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    model = _Model(nn.SiLU())
    check_reproducible(model, lambda: model(torch.ones(2, 64)), most_rows=64)
    monkeypatch.setattr(FunctionCall, "is_steady", lambda call, most_rows: False)
    with pytest.raises(EngineError, match=r"'silu' of 64 numbers in SiLU.*NUM_THREADS=1"):
        check_reproducible(model, lambda: model(torch.ones(2, 64)), most_rows=64)
