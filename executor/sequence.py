"""A running request inside the engine, and the group of the answers that come of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from executor.grammar import Matcher
from executor.request import Choice, Completion, Request, TokenLogprob
from executor.text import StopWatcher

if TYPE_CHECKING:
    from executor.prefix import PrefixNode


@dataclass(slots=True, eq=False)
class Sequence:
    """One answer in the making. The scheduler alone changes what stands below `logprobs`.

    `tokens` are prompt and answer; the first `computed` of them have their keys and values in
    the blocks of `block_table`, in order. Whoever is behind (`remaining` > 0) catches up.
    """

    group: Group
    index: int
    tokens: list[int]
    watcher: StopWatcher | None
    logprobs: list[TokenLogprob] = field(default_factory=list)
    matcher: Matcher | None = None
    """How far it has come in its grammar."""

    computed: int = 0
    block_table: list[int] = field(default_factory=list)
    shared_blocks: int = 0
    """How many blocks at the front of the table were others' first."""
    arrival: int = 0
    """Its number in order of arrival."""
    leaf: PrefixNode | None = None
    """Where its prompt ends in the prefix tree."""
    expected: int = 0
    """Tokens that its answer is expected to have in the end."""
    review_at: int = 0
    """Tokens of the answer at which that is looked at again."""
    cached_tokens: int | None = None
    """Tokens that others had computed when it first ran."""
    recomputes_to: int = 0
    """Tokens that it had computed when it was preempted."""

    @property
    def request(self) -> Request:
        return self.group.request

    @property
    def remaining(self) -> int:
        return len(self.tokens) - self.computed

    @property
    def num_generated(self) -> int:
        return len(self.tokens) - len(self.request.prompt_token_ids)

    @property
    def generated(self) -> list[int]:
        return self.tokens[len(self.request.prompt_token_ids) :]


@dataclass(slots=True, eq=False)
class Group:
    """The sequences that answer a request, and others that are equal to it.

    `width` sequences give its n choices: n, or one where all choices are the same. `request_ids`
    are those to be answered, the first of them being the request's own while it is wanted.
    """

    request: Request
    width: int = 1
    digest: bytes | None = None
    """Under which equal requests find it; None if none is to."""
    request_ids: list[str] = field(default_factory=list)
    priority: int = 0
    sequences: list[Sequence] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    root: PrefixNode | None = None
    """Of a prefix tree of its own, where only its choices share."""

    @property
    def is_complete(self) -> bool:
        return len(self.choices) == self.width

    def unfinished(self) -> list[Sequence]:
        ended = {choice.index for choice in self.choices}
        return [sequence for sequence in self.sequences if sequence.index not in ended]

    def answer(self) -> tuple[Choice, ...]:
        """All n choices in index order, once `is_complete`."""
        if self.width == self.request.sampling.n:
            return tuple(sorted(self.choices, key=lambda choice: choice.index))
        [only] = self.choices
        return tuple(replace(only, index=index) for index in range(self.request.sampling.n))

    def failures(self, reason: str, *, grammar_part: str) -> list[Completion]:
        """One for each request, none of which has an answer."""
        prompt = len(self.request.prompt_token_ids)
        return [
            Completion(
                request_id=request_id,
                prompt_tokens=prompt,
                error=reason,
                grammar_part=grammar_part,
            )
            for request_id in self.request_ids
        ]

    def completions(self) -> list[Completion]:
        """One for each request; all but the first were spared their whole prompt."""
        prompt = len(self.request.prompt_token_ids)
        cached = min(sequence.cached_tokens or 0 for sequence in self.sequences)
        choices = self.answer()
        return [
            Completion(
                request_id=request_id,
                prompt_tokens=prompt,
                choices=choices,
                cached_tokens=prompt if place else cached,
            )
            for place, request_id in enumerate(self.request_ids)
        ]
