"""A running request inside the engine, and the group of the n answers to one request."""

from __future__ import annotations

from dataclasses import dataclass, field

from executor.request import Choice, Completion, Request, TokenLogprob
from executor.text import StopWatcher


@dataclass(slots=True, eq=False)
class Sequence:
    """One answer in the making. The scheduler alone changes `computed` and `block_table`.

    `tokens` are prompt and answer; the first `computed` of them have their keys and values in
    the blocks of `block_table`, in order. Whoever is behind (`remaining` > 0) catches up.
    """

    group: Group
    index: int
    tokens: list[int]
    watcher: StopWatcher | None
    computed: int = 0
    block_table: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)

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
    """The n sequences of a request; complete when each has ended."""

    request: Request
    sequences: list[Sequence] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)

    def end(self, choice: Choice) -> Completion | None:
        """Note one answer; the completion when it was the last one."""
        self.choices.append(choice)
        if len(self.choices) < self.request.sampling.n:
            return None
        return Completion(
            request_id=self.request.id,
            prompt_tokens=len(self.request.prompt_token_ids),
            choices=tuple(sorted(self.choices, key=lambda choice: choice.index)),
        )
