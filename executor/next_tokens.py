"""Which tokens come next, out of the logits of a step."""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import NamedTuple

from torch import Tensor

from executor.masks import Masks
from executor.processors import SamplingRow
from executor.sampling import sample, token_logprobs
from executor.sequence import Sequence
from executor.span import Span
from executor.speculation import right


class Next(NamedTuple):
    """A token that comes next in a sequence, behind `ahead` guesses that were right."""

    sequence: Sequence
    token: int
    ahead: int


def next_tokens(
    logits: Tensor, spans: Many[Span], eos_token_ids: Many[int], masks: Masks | None = None
) -> list[Next]:
    """Of each sequence that catches up: one, and one for each right guess. Notes their
    log-probabilities where asked for.

    Args:
        logits: [R, V], the last `rows` of each span in order; may be changed.
        masks: of those rows.
    """
    rows = [(span, ahead) for span in spans for ahead in range(span.rows)]
    if not rows:
        return []
    has_logprobs = any(span.sequence.request.sampling.logprobs is not None for span, _ in rows)
    allowed = logits if masks is None else masks.apply(logits, keep=has_logprobs)
    tokens = sample(allowed, [_row(span.sequence, ahead, eos_token_ids) for span, ahead in rows])
    found = {i: Next(rows[i][0].sequence, tokens[i], rows[i][1]) for i in right(rows, tokens)}
    _note_logprobs(logits, found)
    return list(found.values())


def _note_logprobs(logits: Tensor, found: dict[int, Next]) -> None:
    wanted = [
        (row, next_, count)
        for row, next_ in found.items()
        if (count := next_.sequence.request.sampling.logprobs) is not None
    ]
    if not wanted:
        return
    entries = token_logprobs(
        logits[[row for row, _, _ in wanted]],
        [next_.token for _, next_, _ in wanted],
        [count for _, _, count in wanted],
    )
    for (_, next_, _), entry in zip(wanted, entries, strict=True):
        next_.sequence.logprobs.append(entry)


def _row(sequence: Sequence, ahead: int, eos_token_ids: Many[int]) -> SamplingRow:
    """For the token that follows `ahead` guesses."""
    params = sequence.request.sampling
    position = sequence.num_generated + ahead
    # Where there is a grammar, the mask sees to the end of sequence.
    ends = () if params.ignore_eos or sequence.matcher is not None else eos_token_ids
    if sequence.history is not None:
        sequence.history.follow(sequence.tokens)
    return SamplingRow(
        params=params,
        choice=sequence.index,
        position=position,
        banned=(*ends, *params.stop_token_ids) if position < params.min_tokens else (),
        history=sequence.history,
    )
