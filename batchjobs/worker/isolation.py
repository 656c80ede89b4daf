"""Finding the line that kills workers, so that it fails alone and the rest completes.

| deaths in a row | what the next claim does |
|---|---|
| 1, 2 | runs the shard as ever: a death has many causes |
| 3 and more | runs it apart, in halves; the half in the engine is noted as suspect |
| one with suspects | halves the suspects, and runs what is beside them as groups of their own |
| 3 with one suspect line | gives that line `worker_crashed`, and runs the rest |

A death is a claim that ended without a committed part and was not given back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from batchjobs import wire
from batchjobs.ids import line_digest
from batchjobs.queue.claims import Claim
from batchjobs.shard_lines import ShardLine
from batchjobs.states import Outcome

FREE_ATTEMPTS = 2
"""Claims that may end in death before a shard, or a single suspect line, is dealt with."""

CODE = "worker_crashed"


def is_dangerous(claim: Claim) -> bool:
    """Whether the shard is to be run apart."""
    return claim.suspects is not None or claim.attempt > FREE_ATTEMPTS


def condemned(claim: Claim, unanswered: Sequence[int]) -> int | None:
    """The line that has killed its worker each time it ran alone, if there is one."""
    suspects = _suspects(claim, unanswered)
    if claim.suspects is None or len(suspects) != 1 or claim.attempt <= FREE_ATTEMPTS:
        return None
    return suspects[0]


def groups(unanswered: Sequence[int], claim: Claim) -> list[list[int]]:
    """Lines to run together, group after group; none spans the border of the suspects."""
    suspects = _suspects(claim, unanswered)
    if not suspects:
        return [list(unanswered)] if unanswered else []
    middle = (len(suspects) + 1) // 2
    before = [line for line in unanswered if line < suspects[0]]
    after = [line for line in unanswered if line > suspects[-1]]
    # What is known to be near the culprit goes last, so that the rest is kept in any case.
    parts = (before, after, suspects[:middle], suspects[middle:])
    return [list(part) for part in parts if part]


def worker_crashed(claim: Claim, line: ShardLine) -> tuple[Outcome, dict[str, Any]]:
    """The line's outcome and its record in the error file."""
    message = f"This request ended the worker that ran it, {claim.attempt - 1} times in a row."
    digest = line_digest(claim.job_id, line.number)
    return Outcome.FAILED, wire.unrun_line(line.custom_id, digest, CODE, message)


def _suspects(claim: Claim, unanswered: Sequence[int]) -> Sequence[int]:
    """Those of the lines that are suspect; all of them while nothing is known."""
    if claim.suspects is None:
        return unanswered
    first, last = claim.suspects
    return [line for line in unanswered if first <= line <= last]
