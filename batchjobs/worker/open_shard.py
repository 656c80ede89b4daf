"""A claimed shard being answered: which lines have a result, and what the next part will hold."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from batchjobs.db import Database
from batchjobs.errors import DatabaseError, LeaseLostError, StoreError
from batchjobs.parts import part_line, read_part
from batchjobs.queue import claims
from batchjobs.queue.claims import Claim, PartFacts
from batchjobs.queue.tallies import Tally
from batchjobs.shard_lines import ShardLine
from batchjobs.states import Outcome
from batchjobs.store.base import ObjectStore
from batchjobs.store.layout import part_key
from batchjobs.worker import events
from executor.request import Completion


@dataclass(frozen=True, slots=True)
class _WrittenPart:
    """A part that is in the store and whose row may or may not be."""

    facts: PartFacts
    tally: Tally


class OpenShard:
    """Results go to `add` as they come and to the store with `checkpoint`. `fingerprint` is that
    of the engine that they come from."""

    def __init__(
        self,
        claim: Claim,
        database: Database,
        store: ObjectStore,
        *,
        fingerprint: str | None = None,
    ) -> None:
        self.claim = claim
        self._fingerprint = fingerprint
        self._database = database
        self._store = store
        self._parts_named = 0
        self._unwritten: list[bytes] = []
        self.unwritten_bytes = 0
        self._unwritten_tally = Tally()
        self._uncommitted: _WrittenPart | None = None
        with database.read() as session:
            parts = claims.committed_parts(session, claim.shard_id)
        self._answered = {result.line for part in parts for result in read_part(store, part)}

    @property
    def is_complete(self) -> bool:
        return len(self._answered) == self.claim.line_count

    @property
    def pending(self) -> Tally:
        """Answered, but not sure to survive a crash yet."""
        written = Tally() if self._uncommitted is None else self._uncommitted.tally
        return written + self._unwritten_tally

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
        self._unwritten.append(part_line(line.number, outcome, record))
        self.unwritten_bytes += len(self._unwritten[-1])
        if outcome is Outcome.FAILED:
            completions = ()  # a failed line states no usage, and the job's is the lines' sum
        self._unwritten_tally += Tally(
            completed=int(outcome is Outcome.COMPLETED),
            failed=int(outcome is Outcome.FAILED),
            input_bytes=line.size,
            prompt_tokens=sum(c.prompt_tokens for c in completions),
            cached_tokens=sum(c.cached_tokens for c in completions),
            completion_tokens=sum(c.completion_tokens for c in completions),
            reasoning_tokens=_reasoning_tokens(record) if completions else 0,
        )
        self._answered.add(line.number)
        events.answered(self.claim, outcome)

    def checkpoint(self) -> None:
        """Put what is pending into the store and make it count.

        May be called again after any failure: a part is written once, and committing it twice
        counts it once.

        Raises:
            LeaseLostError: another worker has the shard; nothing of this counts.
            StoreError, DatabaseError: the results are still pending.
        """
        try:
            if self._uncommitted is not None:
                self._commit(self._uncommitted)
            if self._unwritten:
                self._uncommitted = self._write()
                self._commit(self._uncommitted)
        except (StoreError, DatabaseError) as failed:
            events.checkpoint_failed(self.claim, failed)
            raise

    def _write(self) -> _WrittenPart:
        data = b"".join(self._unwritten)
        part = _WrittenPart(self._facts(data), self._unwritten_tally)
        self._parts_named += 1  # also if `put` fails: its object may still appear
        self._store.put(part.facts.key, data)
        self._unwritten, self._unwritten_tally = [], Tally()
        self.unwritten_bytes = 0
        return part

    def _commit(self, part: _WrittenPart) -> None:
        try:
            self._database.transact(
                lambda session: claims.commit_part(session, self.claim, part.facts)
            )
        except LeaseLostError:
            self._store.delete(part.facts.key)
            raise
        self._uncommitted = None
        events.checkpointed(self.claim, part.tally.completed + part.tally.failed)

    def _facts(self, data: bytes) -> PartFacts:
        claim, pending, number = self.claim, self._unwritten_tally, self._parts_named
        return PartFacts(
            number=number,
            key=part_key(
                claim.job_id, claim.number, claim.fence, number, fingerprint=self._fingerprint
            ),
            sha256=hashlib.sha256(data).hexdigest(),
            completed_lines=pending.completed,
            failed_lines=pending.failed,
            input_bytes=pending.input_bytes,
            prompt_tokens=pending.prompt_tokens,
            cached_tokens=pending.cached_tokens,
            completion_tokens=pending.completion_tokens,
            reasoning_tokens=pending.reasoning_tokens,
        )


def _reasoning_tokens(record: dict[str, Any]) -> int:
    """As the answer itself counts them: only its endpoint can tell reasoning from the rest."""
    usage = (record.get("response") or {}).get("body", {}).get("usage") or {}
    details = usage.get("completion_tokens_details") or usage.get("output_tokens_details") or {}
    count: int = details.get("reasoning_tokens", 0)
    return count
