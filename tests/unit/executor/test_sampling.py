"""Sampling against transformers' own logits processors and against counted frequencies."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from executor.processors import SamplingRow
from executor.request import SamplingParams
from executor.sampling import (
    filtered_probabilities,
    invert,
    sample,
    token_logprobs,
)

VOCABULARY = 500


def random_logits(rows: int, *, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 3


def row(params: SamplingParams, *, position: int = 0, banned: tuple[int, ...] = ()) -> SamplingRow:
    return SamplingRow(params=params, choice=0, position=position, banned=banned)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
@pytest.mark.parametrize(
    ("top_k", "top_p", "min_p"),
    [(0, 1.0, 0.0), (7, 1.0, 0.0), (0, 0.8, 0.0), (0, 1.0, 0.1), (20, 0.7, 0.02), (1, 0.01, 1.0)],
)
def test_filtered_probabilities_equal_transformers_processors(
    temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    logits = random_logits(16)
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    processors = LogitsProcessorList([TemperatureLogitsWarper(temperature)])
    if min_p:
        processors.append(MinPLogitsWarper(min_p))
    if top_k:
        processors.append(TopKLogitsWarper(top_k))
    if top_p < 1:
        processors.append(TopPLogitsWarper(top_p))
    expected = processors(torch.zeros(16, 1, dtype=torch.int64), logits.clone()).softmax(dim=-1)
    torch.testing.assert_close(filtered_probabilities(logits, [params] * 16), expected)


def test_filtered_probabilities_of_a_row_do_not_depend_on_other_rows() -> None:
    logits = random_logits(3)
    params = [
        SamplingParams(top_k=5),
        SamplingParams(top_p=0.3, temperature=0.5),
        SamplingParams(min_p=0.2),
    ]
    together = filtered_probabilities(logits, params)
    for i in range(3):
        alone = filtered_probabilities(logits[i : i + 1], params[i : i + 1])
        torch.testing.assert_close(together[i : i + 1], alone)


@pytest.mark.parametrize("top_p", [0.3, 0.9, 0.999, 0.999999])
@pytest.mark.parametrize("top_k", [0, 3, 70, 4000, 10**9])
@pytest.mark.parametrize("spread", [0.01, 1.0, 4.0])
def test_ranking_as_few_as_needed_keeps_what_a_full_sort_keeps(
    top_p: float, top_k: int, spread: float
) -> None:
    logits = torch.randn(4, 6000, generator=torch.Generator().manual_seed(7)) * spread
    params = SamplingParams(top_p=top_p, top_k=top_k)
    ranked, order = logits.softmax(dim=-1).double().sort(dim=-1, descending=True, stable=True)
    if top_k:
        ranked[:, top_k:] = 0
    ranked /= ranked.sum(dim=-1, keepdim=True)
    ranked[ranked.cumsum(dim=-1) - ranked >= top_p] = 0
    kept = torch.zeros_like(ranked).scatter(-1, order, ranked) > 0
    others = [SamplingParams(top_k=2), SamplingParams(), SamplingParams(top_p=0.5)]
    found = filtered_probabilities(logits, [params, *others]) > 0
    assert torch.equal(found[0], kept[0])


def test_of_equally_likely_tokens_the_first_are_kept_in_any_company() -> None:
    logits = torch.zeros(2, 1000)
    logits[1] = torch.linspace(0, 1, 1000)
    few, many = SamplingParams(top_k=5), SamplingParams(top_k=700)
    for company in ([few], [few, many]):
        kept = filtered_probabilities(logits[: len(company)], company)[0]
        assert kept.nonzero().squeeze(-1).tolist() == [0, 1, 2, 3, 4]


def test_filtered_probabilities_stay_finite_at_a_tiny_temperature() -> None:
    logits = random_logits(2) * 1000
    probabilities = filtered_probabilities(logits, [SamplingParams(temperature=1e-6)] * 2)
    assert probabilities.argmax(dim=-1).tolist() == logits.argmax(dim=-1).tolist()
    assert torch.isfinite(probabilities).all()


@pytest.mark.parametrize("top_p", [1.0, 0.5])
def test_a_row_that_leaves_nothing_gives_some_token_and_harms_no_other(top_p: float) -> None:
    logits = random_logits(3)
    logits[1] = -torch.inf
    params = SamplingParams(temperature=0.7, top_p=top_p, seed=3)
    tokens = sample(logits, [row(params)] * 3)
    assert 0 <= tokens[1] < VOCABULARY
    assert tokens[::2] == sample(logits[::2], [row(params)] * 2)


def test_sample_is_greedy_at_temperature_zero() -> None:
    logits = random_logits(8)
    rows = [row(SamplingParams(temperature=0))] * 8
    assert sample(logits, rows) == logits.argmax(dim=-1).tolist()


def test_sample_never_takes_a_banned_token() -> None:
    logits = random_logits(1)
    best = int(logits.argmax())
    [token] = sample(logits, [row(SamplingParams(temperature=0), banned=(best,))])
    assert token == int(logits[0].topk(2).indices[1])
    assert int(logits.argmax()) == best


def test_sample_draws_follow_the_probabilities() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, -torch.inf]])
    draws = 20_000
    rows = [row(SamplingParams(seed=3), position=i) for i in range(draws)]
    counts = np.bincount(sample(logits.expand(draws, -1), rows), minlength=4)
    expected = logits.softmax(dim=-1)[0].numpy() * draws
    assert counts[3] == 0
    chi_squared = float(((counts[:3] - expected[:3]) ** 2 / expected[:3]).sum())
    assert chi_squared < 13.8  # 0.999 quantile at two degrees of freedom


def test_sample_gives_a_row_the_same_token_in_any_company() -> None:
    logits = random_logits(32)
    rows = [row(SamplingParams(seed=i, top_p=0.9), position=i) for i in range(32)]
    together = sample(logits, rows)
    assert [sample(logits[i : i + 1], rows[i : i + 1])[0] for i in range(32)] == together


@pytest.mark.parametrize("extreme", [0.0, 1 - 2**-53])
def test_invert_takes_only_possible_tokens_at_the_ends(extreme: float) -> None:
    probabilities = torch.tensor([[0.0, 0.25, 0.75, 0.0]])
    assert invert(probabilities, [extreme]).item() == (1 if extreme == 0 else 2)


def test_token_logprobs_equal_a_float64_log_softmax() -> None:
    logits = random_logits(4)
    expected = logits.double().log_softmax(dim=-1)
    entries = token_logprobs(logits, [5, 6, 7, 8], [0, 1, 5, 20])
    for i, entry in enumerate(entries):
        assert entry.token_id == 5 + i
        assert entry.logprob == pytest.approx(expected[i, 5 + i].item(), abs=1e-4)
        top = expected[i].topk([0, 1, 5, 20][i] or 1)
        assert [t for t, _ in entry.top] == top.indices.tolist()[: [0, 1, 5, 20][i]]
