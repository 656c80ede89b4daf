"""Which tokens a sequence has, and how often each was generated."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from executor.request import Request


class History:
    """Counts what is new each time it is asked to `follow` the growing tokens of a sequence, and
    nothing twice: what a preempted one recomputes has been counted already.

    The first `prompt_tokens` count for 0, and only where they are to be remembered at all.
    """

    def __init__(self, prompt_tokens: int, *, with_prompt: bool) -> None:
        self._prompt_tokens = prompt_tokens
        self._followed = 0 if with_prompt else prompt_tokens
        self._places: dict[int, int] = {}
        self._tokens = array("q")
        self._counts = array("q")

    def follow(self, tokens: Sequence[int]) -> None:
        """`tokens` are all of the sequence: those of before and perhaps some more."""
        for position in range(self._followed, len(tokens)):
            token = tokens[position]
            place = self._places.setdefault(token, len(self._places))
            if place == len(self._tokens):
                self._tokens.append(token)
                self._counts.append(0)
            self._counts[place] += position >= self._prompt_tokens
        self._followed = len(tokens)

    def __len__(self) -> int:
        return len(self._tokens)

    def tokens(self) -> NDArray[np.int64]:
        """The distinct ones [K], in the order in which they came first."""
        return np.array(self._tokens, dtype=np.int64)

    def counts(self) -> NDArray[np.int64]:
        """How often each of them [K] was generated."""
        return np.array(self._counts, dtype=np.int64)


def history_of(request: Request) -> History | None:
    """One for each sequence of a request that a penalty asks it for."""
    sampling = request.sampling
    if not sampling.penalizes:
        return None
    return History(len(request.prompt_token_ids), with_prompt=sampling.repetition_penalty != 1)
