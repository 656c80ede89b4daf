"""What is done to logits, beside transformers' own processors on random logits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from executor.history import History
from executor.processors import SamplingRow, process
from executor.request import SamplingParams
from executor.sampling import filtered_probabilities, sample

VOCABULARY = 60
EOS = (3, 7)

tokens_strategy = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=30)


def random_logits(seed: int, rows: int = 1) -> torch.Tensor:
    return torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 4


def row(prompt: list[int], answer: list[int], **sampling: Any) -> SamplingRow:
    params = SamplingParams(max_tokens=1000, **sampling)
    history = History(len(prompt), with_prompt=params.repetition_penalty != 1)
    history.follow([*prompt, *answer])
    too_early = len(answer) < params.min_tokens
    return SamplingRow(
        params=params,
        choice=0,
        position=len(answer),
        banned=EOS if too_early else (),
        history=history if params.penalizes else None,
    )


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2**31),
    tokens_strategy,
    st.lists(st.integers(0, VOCABULARY - 1), max_size=30),
    st.floats(0.05, 3.0),
    st.dictionaries(st.integers(0, VOCABULARY - 1), st.floats(-100, 100, width=32), max_size=8),
    st.integers(0, 40),
)
def test_processed_logits_equal_transformers_processors(
    seed: int,
    prompt: list[int],
    answer: list[int],
    penalty: float,
    bias: dict[int, float],
    min_tokens: int,
) -> None:
    logits = random_logits(seed)
    processors = LogitsProcessorList([])
    if any(bias.values()):
        sequences = {(token,): value for token, value in bias.items()}
        processors.append(SequenceBiasLogitsProcessor(sequences))
    processors.append(RepetitionPenaltyLogitsProcessor(penalty))
    processors.append(MinNewTokensLengthLogitsProcessor(len(prompt), min_tokens, list(EOS), "cpu"))
    expected = processors(torch.tensor([prompt + answer]), logits.clone())
    asked = row(
        prompt,
        answer,
        repetition_penalty=penalty,
        logit_bias=tuple(bias.items()),
        min_tokens=min_tokens,
    )
    torch.testing.assert_close(process(logits.clone(), [asked]), expected)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2**31),
    st.floats(0.05, 3.0),
    st.floats(0.1, 2.0),
    st.integers(0, VOCABULARY + 5),
    st.floats(0.05, 1.0),
    st.floats(0.0, 1.0),
)
def test_all_filters_together_equal_transformers_in_the_same_order(
    seed: int, penalty: float, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    logits, prompt = random_logits(seed), [1, 2, 3, 2]
    processors = LogitsProcessorList([RepetitionPenaltyLogitsProcessor(penalty)])
    processors.append(TemperatureLogitsWarper(temperature))
    if min_p:
        processors.append(MinPLogitsWarper(min_p))
    if top_k:
        processors.append(TopKLogitsWarper(top_k))
    if top_p < 1:
        processors.append(TopPLogitsWarper(top_p))
    expected = processors(torch.tensor([prompt]), logits.clone()).softmax(dim=-1)
    asked = row(
        prompt,
        [],
        repetition_penalty=penalty,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
    )
    found = filtered_probabilities(process(logits.clone(), [asked]), [asked.params])
    # Where a border falls on a rounding error the two may differ by the one token at it.
    differing = (found > 0) != (expected > 0)
    assert differing.sum() <= 1
    if not differing.any():
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 2**31),
    tokens_strategy,
    tokens_strategy,
    st.floats(-2, 2),
    st.floats(-2, 2),
)
def test_presence_and_frequency_are_of_generated_tokens_as_the_public_api_says(
    seed: int, prompt: list[int], answer: list[int], presence: float, frequency: float
) -> None:
    logits = random_logits(seed)
    expected = logits.clone()
    for token in set(answer):
        expected[0, token] -= answer.count(token) * frequency + presence
    asked = row(prompt, answer, presence_penalty=presence, frequency_penalty=frequency)
    found = process(logits.clone(), [asked])
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_rows_do_not_touch_each_other() -> None:
    rows = [
        row([1, 2], [3], repetition_penalty=1.3),
        row([1], []),
        row([4], [5, 5, 6], frequency_penalty=1.5, logit_bias=((9, 4.0),)),
        row([1], [2], allowed_token_ids=(10, 11)),
        row([1], [], min_tokens=4, presence_penalty=-1.0),
    ]
    logits = random_logits(5, len(rows))
    together = process(logits.clone(), rows)
    for i, one in enumerate(rows):
        assert torch.equal(together[i : i + 1], process(logits[i : i + 1].clone(), [one]))
    assert torch.equal(together[1], logits[1])


def test_only_allowed_tokens_are_taken_and_biased_ones_win() -> None:
    logits = random_logits(2, 2)
    rows = [
        row([1], [], temperature=0, allowed_token_ids=(10, 11), logit_bias=((11, 100.0),)),
        row([1], [], allowed_token_ids=(42,)),
    ]
    before = logits.clone()
    assert sample(logits, rows) == [11, 42]
    assert torch.equal(logits, before)


def test_an_answer_that_can_only_end_ends_before_its_least_length() -> None:
    logits = random_logits(2)
    asked = row([1], [], temperature=1.0, min_tokens=5, allowed_token_ids=EOS)
    assert sample(logits, [asked])[0] in EOS


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_sampling_is_the_same_in_any_company(temperature: float) -> None:
    rows = [
        row(
            [1, 2],
            [i % 5] * (i % 4),
            temperature=temperature if i % 3 else 1.0,
            seed=i,
            frequency_penalty=1.0 if i % 2 else 0.0,
        )
        for i in range(24)
    ]
    logits = random_logits(9, len(rows))
    together = sample(logits, rows)
    assert [sample(logits[i : i + 1], rows[i : i + 1])[0] for i in range(24)] == together


def test_history_counts_what_is_new_and_nothing_twice() -> None:
    history = History(3, with_prompt=True)
    tokens = [5, 6, 5]
    history.follow(tokens)
    assert dict(zip(history.tokens(), history.counts(), strict=True)) == {5: 0, 6: 0}
    for token in (7, 5, 7):
        tokens.append(token)
        history.follow(tokens)
        history.follow(tokens)
    assert dict(zip(history.tokens(), history.counts(), strict=True)) == {5: 1, 6: 0, 7: 2}


def test_history_leaves_the_prompt_out_where_no_penalty_is_of_it() -> None:
    history = History(3, with_prompt=False)
    history.follow([5, 6, 5])
    assert len(history) == 0
    history.follow([5, 6, 5, 6])
    assert dict(zip(history.tokens(), history.counts(), strict=True)) == {6: 1}
