"""The generated workloads, with a tokenizer that is a stand-in and with the real one."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from batchjobs.worker.bench.generated import DEFAULT_REQUESTS, generate
from executor.loading import Checkpoint, load_tokenizer
from executor.prompts import PromptText
from executor.request import Request


class Words:
    """About a token a word, as real tokenizers have for English."""

    def render_chat(self, messages: Sequence[dict[str, Any]]) -> str:
        return " ".join(f"<start> {message['content']} <end>" for message in messages)

    def encode_batch(self, prompts: Sequence[PromptText]) -> list[list[int]]:
        return [[hash(word) for word in prompt.text.split()] for prompt in prompts]


def prompts(requests: list[Request]) -> list[int]:
    return sorted(len(request.prompt_token_ids) for request in requests)


def answers(requests: list[Request]) -> list[int]:
    return sorted(request.sampling.max_tokens for request in requests)


def shared_prefix(requests: list[Request]) -> int:
    first = requests[0].prompt_token_ids
    return next(
        i
        for i, token in enumerate(first)
        if any(request.prompt_token_ids[i] != token for request in requests)
    )


@pytest.mark.parametrize("name", DEFAULT_REQUESTS)
def test_the_same_workload_comes_again_and_a_shorter_one_is_its_beginning(name: str) -> None:
    requests = generate(name, Words(), 40)
    assert generate(name, Words(), 40) == requests
    assert generate(name, Words(), 10) == requests[:10]


@pytest.mark.parametrize("name", DEFAULT_REQUESTS)
def test_answers_are_greedy_and_of_full_length(name: str) -> None:
    for request in generate(name, Words(), 8):
        assert request.sampling.ignore_eos
        assert request.sampling.temperature == 0


def test_mixed_prompts_are_all_different() -> None:
    requests = generate("mixed", Words(), 128)
    assert len({request.prompt_token_ids for request in requests}) == 128


def test_mixed_answers_have_a_long_tail() -> None:
    lengths = answers(generate("mixed", Words(), 128))
    assert (lengths[0], lengths[-1]) == (10, 256)
    assert 45 <= statistics.median(lengths) <= 70
    assert 2.5 * statistics.median(lengths) < lengths[int(0.95 * len(lengths))]


def test_prefix_requests_share_most_of_their_prompt() -> None:
    requests = generate("prefix", Words(), 128)
    assert shared_prefix(requests) > 0.85 * prompts(requests)[-1]
    assert (answers(requests)[0], answers(requests)[-1]) == (32, 64)


def test_templated_requests_have_four_beginnings_in_mixed_order() -> None:
    requests = generate("templated", Words(), 512)
    beginnings = [request.prompt_token_ids[:500] for request in requests]
    assert len(set(beginnings)) == 4
    changes = sum(a != b for a, b in pairwise(beginnings))
    assert changes > 300
    assert (answers(requests)[0], answers(requests)[-1]) == (8, 64)


def test_a_fifth_of_templated_requests_are_exact_duplicates() -> None:
    requests = generate("templated", Words(), 512)
    unique = {(request.prompt_token_ids, request.sampling) for request in requests}
    assert 0.17 < 1 - len(unique) / 512 < 0.23


@pytest.mark.model
def test_lengths_are_those_that_are_documented(default_model: Path) -> None:
    tokenizer = load_tokenizer(Checkpoint(source=str(default_model)), vocab_size=49_152)
    mixed = generate("mixed", tokenizer, 128)
    assert (prompts(mixed)[0], prompts(mixed)[-1], sum(prompts(mixed))) == (37, 393, 18_920)
    assert statistics.median_high(prompts(mixed)) == 111
    assert sum(answers(mixed)) == 9_304
    prefix = generate("prefix", tokenizer, 128)
    assert shared_prefix(prefix) == 786
    assert (sum(prompts(prefix)), sum(answers(prefix))) == (107_442, 6_228)
    templated = generate("templated", tokenizer, 512)
    assert 600 <= prompts(templated)[0] <= prompts(templated)[-1] <= 700
