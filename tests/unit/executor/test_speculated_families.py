"""Guesses checked by real models of many families: tokens and log-probabilities stay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from executor import hook
from executor.build import BACKENDS
from executor.engine import Engine
from executor.fake import ByteTokenizer
from executor.model import PackedModel, PagedCache
from executor.probing import probe_layers
from executor.request import Choice, Request, SamplingParams
from executor.settings import Limits, Scheduling, Speculation
from executor.speculation import Lookup
from tests.support.tiny_models import FAMILIES, tiny_config, tiny_model

LIMITS = Limits(
    max_num_seqs=3, max_num_batched_tokens=24, max_model_len=80, num_blocks=40, block_size=8
)
GUESSING = Speculation(num_speculative_tokens=4, prompt_lookup_min=1)


def prompt(number: int) -> tuple[int, ...]:
    return (5, 9, 17, 5, 9, 60 + number)


def answers(family: str, speculation: Speculation | None) -> tuple[dict[str, Choice], Engine]:
    hook.register()
    model = tiny_model(tiny_config(family), attention=hook.NAME)
    cache = PagedCache(probe_layers(model, model.config), LIMITS, dtype=model.dtype, device="cpu")
    packed = PackedModel(model, cache, BACKENDS["cpu"])
    scheduling = Scheduling(speculation=speculation, expected_tokens=1)
    engine = Engine(packed, ByteTokenizer(), LIMITS, scheduling)
    sampling = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, logprobs=2)
    requests = [
        Request(
            id=str(i),
            prompt_token_ids=prompt(i),
            sampling=replace(sampling, temperature=0.3 * (i % 2), seed=i),
        )
        for i in range(6)
    ]
    return {c.request_id: c.choices[0] for c in engine.run(requests)}, engine


def half_right(texts: list[list[int]]) -> Callable[[Lookup, list[int], int], list[int]]:
    """Guesses of which the first two are right, and the others wrong."""

    def guess(lookup: Lookup, tokens: list[int], count: int) -> list[int]:
        text = next((t for t in texts if t[: len(tokens)] == tokens), [])
        following = text[len(tokens) : len(tokens) + count]
        return following[:2] + [(token + 1) % 128 for token in following[2:]]

    return guess


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_stay_with_guesses(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without, plain = answers(family, None)
    texts = [[*prompt(int(i)), *choice.token_ids] for i, choice in without.items()]
    monkeypatch.setattr("executor.speculation.needed_rate", lambda cost, share, context: 0.0)
    monkeypatch.setattr("executor.speculation.Lookup.guess", half_right(texts))
    with_guesses, engine = answers(family, GUESSING)
    assert engine.metrics.steps_total < plain.metrics.steps_total
    assert engine.metrics.wasted_tokens_total > 20
    for request_id, choice in without.items():
        guessed = with_guesses[request_id]
        assert guessed.token_ids == choice.token_ids
        for ours, theirs in zip(guessed.logprobs or (), choice.logprobs or (), strict=True):
            assert ours.logprob == pytest.approx(theirs.logprob, abs=1e-4)
