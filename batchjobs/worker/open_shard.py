"""A claimed shard being answered: which lines have a result, and what the next part will hold."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import orjson

from batchjobs.db import Database
from batchjobs.errors import LeaseLostError
from batchjobs.jsonl import dump_line
from batchjobs.models import Part
from batchjobs.queue import claims
from batchjobs.queue.claims import Claim, PartFacts
from batchjobs.queue.jobs import Tally
from batchjobs.shard_lines import ShardLine
from batchjobs.states import Outcome
from batchjobs.store.base import ObjectStore
from batchjobs.store.layout import part_key
from executor.request import Completion


class OpenShard:
    """Results go to `add` as they come and to the store with `checkpoint`; `pending` sums up
    those in between."""

    def __init__(self, claim: Claim, database: Database, store: ObjectStore) -> None:
        self.claim = claim
        self._database = database
        self._store = store
        self._parts_written = 0
        self._unwritten: list[bytes] = []
        self.pending = Tally()
        with database.read() as session:
            self._answered = _answered_lines(store, claims.committed_parts(session, claim.shard_id))

    @property
    def is_complete(self) -> bool:
        return len(self._answered) == self.claim.line_count

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
        self._unwritten.append(
            dump_line({"line": line.number, "outcome": outcome, "record": record})
        )
        self.pending += Tally(
            completed=int(outcome is Outcome.COMPLETED),
            failed=int(outcome is Outcome.FAILED),
            input_bytes=line.size,
            prompt_tokens=sum(c.prompt_tokens for c in completions),
            cached_tokens=sum(c.cached_tokens for c in completions),
            completion_tokens=sum(c.completion_tokens for c in completions),
        )
        self._answered.add(line.number)

    def checkpoint(self) -> None:
        """Put what is pending into the store and make it count.

        Raises:
            LeaseLostError: another worker has the shard; nothing of this counts.
            StoreError: the store fails; the results are still pending.
        """
        if not self._unwritten:
            return
        data = b"".join(self._unwritten)
        facts = self._facts(data)
        self._store.put(facts.key, data)
        self._parts_written += 1
        try:
            with self._database.write() as session:
                claims.commit_part(session, self.claim, facts)
        except LeaseLostError:
            self._store.delete(facts.key)
            raise
        self._unwritten = []
        self.pending = Tally()

    def _facts(self, data: bytes) -> PartFacts:
        claim, pending, number = self.claim, self.pending, self._parts_written
        return PartFacts(
            number=number,
            key=part_key(claim.job_id, claim.number, claim.fence, number),
            sha256=hashlib.sha256(data).hexdigest(),
            completed_lines=pending.completed,
            failed_lines=pending.failed,
            input_bytes=pending.input_bytes,
            prompt_tokens=pending.prompt_tokens,
            cached_tokens=pending.cached_tokens,
            completion_tokens=pending.completion_tokens,
        )


def _answered_lines(store: ObjectStore, parts: Sequence[Part]) -> set[int]:
    answered: set[int] = set()
    for part in parts:
        with store.open(part.key) as stream:
            answered.update(orjson.loads(line)["line"] for line in stream)
    return answered
