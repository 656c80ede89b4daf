"""Log-probabilities of prompt tokens: each comes of the logits at the token before it."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Many
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from executor.sampling import token_logprobs
from executor.sequence import Group
from executor.span import Span

SLICE_NUMBERS = 1 << 22
"""Logits held at once: 16 MiB of float32, however long a prompt and large a vocabulary are. Much
more is slower, as it is memory anew each time, and so is much less, as products get thin."""


class RowLogits(Protocol):
    def logits_at(self, rows: Many[int]) -> Tensor:
        """Logits [R, V] at these rows of the last step's packed row."""


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """At `row` of a step's packed row, the prompt's next token is `token`."""

    group: Group
    row: int
    token: int


def score_prompts(spans: Many[Span], model: RowLogits, vocabulary: int) -> None:
    """Note what the step that has just been computed says of its prompts' tokens."""
    rows = list(rows_to_score(spans))
    most = max(1, SLICE_NUMBERS // vocabulary)
    for first in range(0, len(rows), most):
        part = rows[first : first + most]
        entries = token_logprobs(
            model.logits_at([scored.row for scored in part]),
            [scored.token for scored in part],
            [scored.group.request.sampling.prompt_logprobs or 0 for scored in part],
        )
        for scored, entry in zip(part, entries, strict=True):
            scored.group.prompt_logprobs.append(entry)


def rows_to_score(spans: Many[Span]) -> Iterator[ScoredRow]:
    """Each token once, whatever is recomputed or computed by several choices of a request."""
    known: dict[Group, int] = {}
    first_row = 0
    for span in spans:
        group = span.sequence.group
        if group.scores_prompt:
            prompt = group.request.prompt_token_ids
            start = known.get(group, len(group.prompt_logprobs))
            end = max(start, min(span.start + span.count, len(prompt) - 1))
            assert start == end or span.start <= start, "what was computed before was scored"
            known[group] = end
            for position in range(start, end):
                yield ScoredRow(group, first_row + position - span.start, prompt[position + 1])
        first_row += span.positions
