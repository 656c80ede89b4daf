"""Guess an answer's next tokens from its own text, and check the guesses in one step.

Prompt lookup (Saxena 2023; vLLM's `ngram`): what followed the last few tokens where they stood
before may follow them again. Guessed tokens are computed as further positions of the same step.
As sampling here is a function of logits, seed and position, the token after each position is the
one that would have been sampled anyway; guesses that differ from it are dropped, and the next
step writes over their keys and values. Answers are those of an engine that does not guess.

Guessing pays while a step costs much more than a position: near the end of a run, or with few
requests, and for text that repeats. A guess that is right saves a share of a step's fixed cost
(`Scheduler._shares`), and one that is wrong costs a position: one that is right with probability
p pays when p · share · fixed > (1 - p) · position. How often a sequence's guesses are right is
known without computing any: every token that comes is compared with its guess.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import MISSING, fields
from typing import Any

from executor.request import Request
from executor.sequence import Sequence
from executor.settings import Speculation
from executor.span import Span
from executor.step_time import StepCost, StepTimes

NOT_WORTHWHILE = 0.6
"""Where guesses would have to be right more often than this, they are not even looked for: what
text that repeats could win there is less than what looking costs for text that does not."""
_CANDIDATES = 8
"""Places looked at for the longest match, the latest first."""
_MEMORY = 0.9
"""Weight that a guess keeps with each one that follows in its sequence."""
_RUN_MEMORY = 0.999
_PRIOR_WEIGHT = 2.0
"""Guesses that what the run has seen counts for in a new sequence."""
_PRIOR_RATE = 0.5

_SAMPLING = {"temperature", "top_p", "top_k", "min_p", "seed", "n", "logprobs"}
_FIXED = {"prompt_logprobs", "logit_bias", "allowed_token_ids"}
_ENDS = {"max_tokens", "min_tokens", "stop", "stop_token_ids", "ignore_eos"}
_EACH_FOR_ITSELF = frozenset(_SAMPLING | _FIXED | _ENDS)
_SAID_OF_REQUESTS = frozenset({"id", "prompt_token_ids", "sampling", "priority", "timeout_seconds"})


def may_be_speculated(request: Request) -> bool:
    """Whether each token's distribution is known from its position's logits and its number.

    A parameter that this module does not know may look at the tokens before (penalties, a
    grammar): a request that sets one is not speculated.
    """
    return _has_only(request.sampling, _EACH_FOR_ITSELF) and _has_only(request, _SAID_OF_REQUESTS)


def _has_only(value: Any, known: frozenset[str]) -> bool:
    return all(
        field.name in known or getattr(value, field.name) == _default(field)
        for field in fields(value)
    )


def _default(field: Any) -> object:
    """MISSING, which is equal to nothing, where there is none."""
    made = MISSING if field.default_factory is MISSING else field.default_factory()
    return made if field.default is MISSING else field.default


class Lookup:
    """Where short runs of tokens stood before in one growing list, in O(new tokens)."""

    def __init__(self, shortest: int, longest: int) -> None:
        self._shortest = shortest
        self._longest = longest
        self._latest: dict[tuple[int, ...], int] = {}
        self._earlier: list[int] = []
        """For each place, by its last token, the one before it with the same tokens, or -1."""

    def guess(self, tokens: list[int], count: int) -> list[int]:
        """What `count` tokens may follow; none where the last ones stood nowhere before."""
        self._index(tokens)
        at = self._best(tokens)
        if at is None:
            return []
        follows = tokens[at + 1 : at + 1 + count]
        period = len(tokens) - 1 - at
        # A loop goes on with what was guessed.
        while len(follows) < count:
            follows.append(follows[-period])
        return follows

    def _index(self, tokens: list[int]) -> None:
        """All but the last run, which is the one to look for."""
        for end in range(len(self._earlier), len(tokens) - 1):
            if end < self._shortest - 1:
                self._earlier.append(-1)
                continue
            key = tuple(tokens[end - self._shortest + 1 : end + 1])
            self._earlier.append(self._latest.get(key, -1))
            self._latest[key] = end

    def _best(self, tokens: list[int]) -> int | None:
        """The last token of the longest match; of equals the latest."""
        last = len(tokens) - 1
        if last < self._shortest:
            return None
        place = self._latest.get(tuple(tokens[-self._shortest :]), -1)
        best, best_length = None, 0
        for _ in range(_CANDIDATES):
            if place < 0:
                break
            length = self._shortest
            while (
                length < self._longest
                and length <= place
                and tokens[place - length] == tokens[last - length]
            ):
                length += 1
            if length > best_length:
                best, best_length = place, length
            place = self._earlier[place]
        return best


class Rate:
    """A share of guesses that were right, the latest weighing most."""

    def __init__(self, memory: float) -> None:
        self._memory = memory
        self.right = self.made = 0.0

    def note(self, *, is_right: bool) -> None:
        self.right = self._memory * self.right + is_right
        self.made = self._memory * self.made + 1

    def estimate(self, prior: float) -> float:
        return (self.right + _PRIOR_WEIGHT * prior) / (self.made + _PRIOR_WEIGHT)


class Drafter:
    """The guesses of one sequence, and how often they were right."""

    def __init__(self, speculation: Speculation, request: Request) -> None:
        self.may_guess = may_be_speculated(request)
        self._most = speculation.num_speculative_tokens
        self._lookup = Lookup(speculation.prompt_lookup_min, speculation.prompt_lookup_max)
        self._rate = Rate(_MEMORY)
        self._guessed: list[int] = []
        self._guessed_at = 0

    def guess(self, tokens: list[int], run: Rate) -> list[int]:
        """What may come next, once what has come is compared with what was guessed."""
        self._compare(tokens, run)
        self._guessed = self._lookup.guess(tokens, self._most)
        self._guessed_at = len(tokens)
        return self._guessed

    def rate(self, run: Rate) -> float:
        """With which probability the next guess is right."""
        return self._rate.estimate(run.estimate(_PRIOR_RATE))

    def _compare(self, tokens: list[int], run: Rate) -> None:
        for came, guessed in zip(tokens[self._guessed_at :], self._guessed, strict=False):
            self._rate.note(is_right=came == guessed)
            run.note(is_right=came == guessed)
            if came != guessed:
                return


class Speculator:
    """Decides how many guesses of which sequences a step is to check."""

    def __init__(self, speculation: Speculation, times: StepTimes) -> None:
        self._speculation = speculation
        self._times = times
        self._run = Rate(_RUN_MEMORY)

    def drafts(self, sequences: Many[Sequence], shares: Many[float]) -> list[list[int]]:
        """Guesses to check for each of the sequences that are about to get one more token, which
        saves such a share of a step."""
        cost = self._times.cost
        return [self._draft(s, cost, share) for s, share in zip(sequences, shares, strict=True)]

    def _draft(self, sequence: Sequence, cost: StepCost, share: float) -> list[int]:
        most = sequence.request.sampling.max_tokens - sequence.num_generated - 1
        needed = needed_rate(cost, share, len(sequence.tokens))
        if most <= 0 or needed > NOT_WORTHWHILE:
            return []
        if sequence.drafter is None:
            sequence.drafter = Drafter(self._speculation, sequence.request)
        if not sequence.drafter.may_guess:
            return []
        guesses = sequence.drafter.guess(sequence.tokens, self._run)
        return guesses[: min(most, _depth(sequence.drafter.rate(self._run), needed, len(guesses)))]


def right(rows: Many[tuple[Span, int]], tokens: Many[int]) -> list[int]:
    """The rows of logits, in order, that stand behind right guesses only.

    Args:
        rows: span and number of guesses before the row's token, row by row.
        tokens: what was sampled from each.
    """
    kept: list[int] = []
    for row, (span, ahead) in enumerate(rows):
        is_first = ahead == 0
        if is_first or (kept[-1] == row - 1 and tokens[row - 1] == span.draft[ahead - 1]):
            kept.append(row)
    return kept


def needed_rate(cost: StepCost, share: float, context: int) -> float:
    """How often a guess must be right to pay, 0 to 1, if it then saves such a share of a step."""
    row = cost.row(context)
    return row / (cost.fixed * share + row) if row > 0 else 0.0


def _depth(rate: float, needed: float, most: int) -> int:
    """How many guesses in a row are each right, and all before them, often enough."""
    depth, chance = 0, rate
    while depth < most and chance > needed:
        depth += 1
        chance *= rate
    return depth
