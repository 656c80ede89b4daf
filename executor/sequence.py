"""A running request inside the engine, and the group of the answers that come of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from executor.grammar import Matcher
from executor.history import History
from executor.request import Choice, Completion, Request, TokenLogprob
from executor.text import StopWatcher

if TYPE_CHECKING:
    from executor.prefix import PrefixNode
    from executor.speculation import Drafter


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
    history: History | None = None
    """Where a penalty asks for it; follows `tokens`."""
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
    drafter: Drafter | None = None
    """What guesses its next tokens, once somebody has asked."""

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


@dataclass(frozen=True, slots=True)
class Answer:
    """What all requests that are equal get: the choices, and log-probabilities of the prompt."""

    choices: tuple[Choice, ...]
    prompt_logprobs: tuple[TokenLogprob, ...] | None

    @property
    def size(self) -> int:
        """Tokens that are remembered; those that a log-probability is of count as well."""
        generated = sum(
            1 + len(choice.token_ids) + _size(choice.logprobs) for choice in self.choices
        )
        return generated + _size(self.prompt_logprobs)


def _size(logprobs: tuple[TokenLogprob, ...] | None) -> int:
    return sum(1 + len(entry.top) for entry in logprobs or ())


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
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)
    """Of the prompt's tokens from the second on, as far as they are known; only grows."""
    root: PrefixNode | None = None
    """Of a prefix tree of its own, where only its choices share."""

    @property
    def is_complete(self) -> bool:
        return len(self.choices) == self.width

    def unfinished(self) -> list[Sequence]:
        ended = {choice.index for choice in self.choices}
        return [sequence for sequence in self.sequences if sequence.index not in ended]

    @property
    def scores_prompt(self) -> bool:
        """Whether log-probabilities of the prompt's tokens are asked for."""
        return self.request.sampling.prompt_logprobs is not None

    def take_scores(self, scores: list[TokenLogprob], count: int) -> None:
        """Have the first `count` log-probabilities of the prompt, those missing from others'."""
        if self.scores_prompt:
            self.prompt_logprobs += scores[len(self.prompt_logprobs) : count]

    def answer(self) -> Answer:
        """All n choices in index order, once `is_complete`."""
        if self.width == self.request.sampling.n:
            choices = sorted(self.choices, key=lambda choice: choice.index)
        else:
            [only] = self.choices
            choices = [replace(only, index=i) for i in range(self.request.sampling.n)]
        return Answer(tuple(choices), tuple(self.prompt_logprobs) if self.scores_prompt else None)

    def failures(
        self, reason: str, *, error_code: str | None, grammar_part: str | None
    ) -> list[Completion]:
        """One for each request, none of which has an answer."""
        prompt = len(self.request.prompt_token_ids)
        return [
            Completion(
                request_id=request_id,
                prompt_tokens=prompt,
                error=reason,
                error_code=error_code,
                grammar_part=grammar_part,
            )
            for request_id in self.request_ids
        ]

    def completions(self) -> list[Completion]:
        """One for each request; all but the first were spared their whole prompt."""
        prompt = len(self.request.prompt_token_ids)
        cached = min(sequence.cached_tokens or 0 for sequence in self.sequences)
        answer = self.answer()
        return [
            Completion(
                request_id=request_id,
                prompt_tokens=prompt,
                choices=answer.choices,
                prompt_logprobs=answer.prompt_logprobs,
                cached_tokens=prompt if place else cached,
            )
            for place, request_id in enumerate(self.request_ids)
        ]
