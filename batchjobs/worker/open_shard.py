"""A claimed shard being answered: which lines have a result, and what the next part will hold."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from batchjobs.db import Database
from batchjobs.errors import LeaseLostError
from batchjobs.jsonl import dump_line
from batchjobs.models import Part
from batchjobs.queue import claims
from batchjobs.queue.claims import Claim, PartFacts
from batchjobs.shard_lines import ShardLine
from batchjobs.states import Outcome
from batchjobs.store.base import ObjectStore
from batchjobs.store.layout import part_key
from executor.request import Completion


@dataclass(slots=True)
class _NextPart:
    """Results not yet in the store. `tokens` are prompt, cached and completion tokens."""

    lines: list[bytes]
    completed: int = 0
    failed: int = 0
    input_bytes: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


class OpenShard:
    """Results go to `add` as they come and to the store with `checkpoint`."""

    def __init__(self, claim: Claim, database: Database, store: ObjectStore) -> None:
        self.claim = claim
        self._database = database
        self._store = store
        self._parts_written = 0
        self._next = _NextPart([])
        with database.read() as session:
            self._answered = _answered_lines(store, claims.committed_parts(session, claim.shard_id))

    @property
    def is_complete(self) -> bool:
        return len(self._answered) == self.claim.line_count

    @property
    def pending(self) -> tuple[int, int]:
        """Completed and failed lines that are not checkpointed yet."""
        return self._next.completed, self._next.failed

    def has_answer(self, line: int) -> bool:
        return line in self._answered

    def add(
        self,
        line: ShardLine,
        outcome: Outcome,
        record: dict[str, Any],
        completions: Sequence[Completion] = (),
    ) -> None:
        """Note the result of a line; `record` is its line in the output or error file."""
        part = self._next
        part.lines.append(dump_line({"line": line.number, "outcome": outcome, "record": record}))
        part.completed += outcome is Outcome.COMPLETED
        part.failed += outcome is Outcome.FAILED
        part.input_bytes += line.size
        part.prompt_tokens += sum(c.prompt_tokens for c in completions)
        part.cached_tokens += sum(c.cached_tokens for c in completions)
        part.completion_tokens += sum(c.completion_tokens for c in completions)
        self._answered.add(line.number)

    def checkpoint(self) -> None:
        """Put what is pending into the store and make it count.

        Raises:
            LeaseLostError: another worker has the shard; nothing of this counts.
            StoreError: the store fails; the results are still pending.
        """
        part = self._next
        if not part.lines:
            return
        data = b"".join(part.lines)
        claim = self.claim
        number = self._parts_written
        key = part_key(claim.job_id, claim.number, claim.fence, number)
        self._store.put(key, data)
        self._parts_written += 1
        facts = PartFacts(
            number=number,
            key=key,
            sha256=hashlib.sha256(data).hexdigest(),
            completed_lines=part.completed,
            failed_lines=part.failed,
            input_bytes=part.input_bytes,
            prompt_tokens=part.prompt_tokens,
            cached_tokens=part.cached_tokens,
            completion_tokens=part.completion_tokens,
        )
        try:
            with self._database.write() as session:
                claims.commit_part(session, claim, facts)
        except LeaseLostError:
            self._store.delete(key)
            raise
        self._next = _NextPart([])


def _answered_lines(store: ObjectStore, parts: Sequence[Part]) -> set[int]:
    answered: set[int] = set()
    for part in parts:
        with store.open(part.key) as stream:
            answered.update(orjson.loads(line)["line"] for line in stream)
    return answered
