"""Bits of the real model's answers, which are the same in any company under the setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from executor.build import ReadyEngine
from executor.forecast import Forecast
from executor.request import Request
from tests.support.company import (
    COMPANIES,
    PREEMPTING,
    answers,
    build,
    mixed_requests,
    one_by_one,
)
from tests.support.prompts import chat_ids

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

RULES = "You answer in plain words, name your sources, and never invent a fact. " * 6
SUBJECTS = (
    "the moon", "bread", "2 + 2", "a haiku", "Paris", "sorting", "the sky", "žluťoučký kůň",
    "primes", "rain",
)  # fmt: skip


def requests_of(engine: ReadyEngine) -> list[Request]:
    """Greedy and sampled ones; half of them begin with the same rules."""
    conversations = [
        [*system, {"role": "user", "content": f"Tell me about {subject}."}]
        for system in ([], [{"role": "system", "content": RULES}])
        for subject in SUBJECTS
    ]
    prompts = [tuple(chat_ids(engine.tokenizer, messages)) for messages in conversations]
    return mixed_requests(prompts, tokens=8)


@pytest.fixture(scope="module")
def engine(default_model: Path) -> ReadyEngine:
    return build(default_model)


@pytest.fixture(scope="module")
def expected(engine: ReadyEngine) -> dict[str, str]:
    return one_by_one(engine, requests_of(engine))


def test_all_together_and_in_reversed_order_the_bits_are_the_same(
    engine: ReadyEngine, expected: dict[str, str]
) -> None:
    requests = requests_of(engine)
    assert answers(engine, requests) == expected
    assert answers(engine, requests[::-1]) == expected


@pytest.mark.parametrize(
    "name",
    [
        "small chunks",
        *(pytest.param(name, marks=pytest.mark.slow) for name in COMPANIES if name[0] != "s"),
    ],
)
def test_no_settings_of_size_change_a_bit(
    name: str, default_model: Path, expected: dict[str, str]
) -> None:
    engine = build(default_model, **COMPANIES[name])
    assert answers(engine, requests_of(engine)) == expected


@pytest.mark.slow
def test_neither_does_being_computed_again(
    engine: ReadyEngine, default_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Forecast, "fits", lambda forecast, free: free >= 0)
    prompts = [request.prompt_token_ids for request in requests_of(engine)[: len(SUBJECTS)]]
    requests = mixed_requests(prompts, tokens=40)
    blocks = 6 * 64 * 46_080
    scarce = build(default_model, **PREEMPTING, max_model_len=192, kv_cache_memory=blocks)
    assert answers(scarce, requests) == one_by_one(engine, requests)
    assert scarce.engine.metrics.num_preemptions_total > 0
