"""One way to answer a workload: what it gave, and what is kept of its course."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from batchjobs.worker.run_figures import RunFigures
from executor.recorder import Moment
from executor.request import Request

Answers = dict[str, tuple[int, ...]]
"""Token ids by `answer_key`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WayResult:
    """`course` are the running answers over time, `title` what it is called in the picture."""

    name: str
    title: str
    figures: RunFigures
    course: tuple[Moment, ...]
    answers: Answers
    lengths: dict[str, int]
    """Generated tokens by `answer_key`."""
    advice: tuple[str, ...] = ()
    others_share: float = 0.0
    """Of the processors' time, what other programs took meanwhile."""


def answer_key(request_id: str, index: int) -> str:
    """The name of one of a request's n answers."""
    return f"{request_id}#{index}" if index else request_id


def same_answers(ours: Answers, theirs: Answers) -> int:
    """How many answers begin alike; a way of theirs may go on where ours has ended."""
    return sum(theirs[key][: len(tokens)] == tokens for key, tokens in ours.items())


def longest(requests: Sequence[Request]) -> int:
    """Tokens of the longest request, prompt and answer."""
    return max(
        len(r.prompt_token_ids) + (0 if r.pooling else r.sampling.max_tokens) for r in requests
    )
