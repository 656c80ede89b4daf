"""Workloads that are generated: the same for the same tokenizer, everywhere.

| name | prompts, in SmolLM2's tokens | answers |
|---|---|---|
| mixed | 37 to 393, median 111 | 10 to 256, median 53, log-normal |
| prefix | 786 that all share, and a question of about 50 | 32 to 64 |
| templated | 4 templates of about 600 in mixed order, a note; one in five a duplicate | 8 to 64 |

Answers have their full length: end-of-sequence tokens pass, so that all ways do the same work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, Protocol

from batchjobs.worker.bench import words
from executor.prompts import PromptText
from executor.request import Request, SamplingParams

Messages = list[dict[str, Any]]
Draft = tuple[Messages, int]
"""A conversation and how many tokens its answer has."""


class Renderer(Protocol):
    """The part of a tokenizer that writing prompts needs."""

    def render_chat(self, messages: Sequence[dict[str, Any]]) -> str: ...

    def encode_batch(self, prompts: Sequence[PromptText]) -> list[list[int]]: ...


DEFAULT_REQUESTS = {"mixed": 128, "prefix": 128, "templated": 512}
_SEEDS = {"mixed": 20261130, "prefix": 20261201, "templated": 20261202}

_TEMPLATE_TOKENS = 600
_DUPLICATES = 0.2


def generate(name: str, tokenizer: Renderer, count: int) -> list[Request]:
    """The first `count` requests of a workload of DEFAULT_REQUESTS.

    Raises ValueError when the model has no chat template.
    """
    random = Random(_SEEDS[name])  # noqa: S311
    drafts: Iterator[Draft] = _WRITERS[name](random, tokenizer, count)
    return [
        Request(
            id=f"{name}-{number:04}",
            prompt_token_ids=tuple(_encode(messages, tokenizer)),
            sampling=SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True),
        )
        for number, (messages, max_tokens) in enumerate(drafts)
    ]


def _mixed(random: Random, tokenizer: Renderer, count: int) -> Iterator[Draft]:
    seen: set[str] = set()
    while len(seen) < count:
        prompt_tokens = _log_normal(random, median=120, sigma=0.75, least=22, most=396)
        max_tokens = _log_normal(random, median=52, sigma=0.85, least=10, most=256)
        text = _short(random) if prompt_tokens < 75 else _long(random, tokenizer, prompt_tokens)
        if text not in seen:
            seen.add(text)
            yield _user(text), max_tokens


def _log_normal(random: Random, *, median: float, sigma: float, least: int, most: int) -> int:
    return min(most, max(least, int(math.exp(random.gauss(math.log(median), sigma)))))


def _short(random: Random) -> str:
    if random.random() < 0.5:
        return random.choice(words.QUESTIONS)
    who, where = random.choice(words.NAMES), random.choice(words.PLACES)
    return f"{who} from {where} asks: {random.choice(words.QUESTIONS)}"


def _long(random: Random, tokenizer: Renderer, tokens: int) -> str:
    """A note of at most so many tokens, unless its first sentence has more, and a task."""
    task = random.choice(words.TASKS)
    note = ""
    while True:
        longer = f"{note} {words.sentence(random)}".strip()
        fits = len(_encode(_user(f"Note: {longer}\n\n{task}"), tokenizer)) <= tokens
        if fits or not note:
            note = longer
        if not fits:
            return f"Note: {note}\n\n{task}"


def _prefix(random: Random, tokenizer: Renderer, count: int) -> Iterator[Draft]:
    rules = "\n".join(f"{n}. {rule}" for n, rule in enumerate(words.HANDBOOK, start=1))
    system = {"role": "system", "content": words.HANDBOOK_HEAD + rules}
    for _ in range(count):
        question = random.choice(words.CUSTOMERS).format(
            p=random.choice(words.NAMES),
            n=random.randint(2, 19),
            x=random.choice(words.RENTED),
            t=random.choice(words.TOWNS),
            d=random.randint(2, 14),
            v=random.randint(1000, 9999),
        )
        yield [system, *_user(question)], random.randint(32, 64)


def _templated(random: Random, tokenizer: Renderer, count: int) -> Iterator[Draft]:
    templates = [_template(random, tokenizer, head) for head in words.TEMPLATES]
    drafts: list[Draft] = []
    for number in range(count):
        if drafts and random.random() < _DUPLICATES:
            drafts.append(random.choice(drafts))
            continue
        note = f"{words.sentence(random)} Entry {number + 1}."
        system = {"role": "system", "content": random.choice(templates)}
        drafts.append(([system, *_user(note)], random.randint(8, 64)))
    return iter(drafts)


def _template(random: Random, tokenizer: Renderer, head: str) -> str:
    """`head` with examples until it has its length."""
    text, number = head, 0
    while len(_encode(_user(text), tokenizer)) < _TEMPLATE_TOKENS:
        number += 1
        text += f"{number}. {words.sentence(random)}\n"
    return text


def _encode(messages: Messages, tokenizer: Renderer) -> list[int]:
    prompt = PromptText(text=tokenizer.render_chat(messages), special_tokens=False)
    return tokenizer.encode_batch([prompt])[0]


def _user(text: str) -> Messages:
    return [{"role": "user", "content": text}]


_WRITERS: dict[str, Callable[[Random, Renderer, int], Iterator[Draft]]] = {
    "mixed": _mixed,
    "prefix": _prefix,
    "templated": _templated,
}
