"""One request line on its way through the engine: prepared, completed, answered."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from batchjobs import wire
from batchjobs.endpoints.base import Draft, Endpoint, LineContext, ModelContext, check_task
from batchjobs.endpoints.drafts import encode_together
from batchjobs.errors import BatchJobsError
from batchjobs.ids import line_digest
from batchjobs.queue.claims import Claim
from batchjobs.shard_lines import ShardLine
from batchjobs.states import Outcome
from executor.request import Completion, Request

logger = logging.getLogger(__name__)

_T = TypeVar("_T")


@dataclass(slots=True, kw_only=True)
class LineWork:
    """`expected` engine requests answer the line; `completions` of them have come, by number."""

    endpoint: Endpoint
    line: ShardLine
    context: LineContext
    model: ModelContext
    expected: int = 0
    completions: dict[int, Completion] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        return len(self.completions) == self.expected

    def draft(self) -> Draft:
        """What the line asks of the engine. Raises BatchJobsError when it cannot run."""
        return _isolated(self._draft, self.line)

    def requests(self, draft: Draft, encoded: Sequence[list[int]] | None) -> list[Request]:
        """The engine requests of the line; `encoded` are its prompts, None if they are to be
        encoded alone. Raises BatchJobsError when it cannot run."""

        def finish() -> list[Request]:
            alone = encode_together([draft], self.model)[0] if encoded is None else encoded
            return draft.finish(alone)

        requests = _isolated(finish, self.line)
        self.expected = len(requests)
        return requests

    def _draft(self) -> Draft:
        check_task(self.endpoint, self.model)
        return self.endpoint.draft(self.line.body, self.context, self.model)

    def answer(self) -> tuple[Outcome, dict[str, Any]]:
        """The line's outcome and its record in the output or error file."""
        completions = [self.completions[number] for number in range(self.expected)]
        try:
            body = _isolated(
                lambda: self.endpoint.respond(
                    self.line.body, self.context, self.model, completions
                ),
                self.line,
            )
        except BatchJobsError as error:
            return self.failure(error)
        record = wire.success_line(self.line.custom_id, self.context.id, body)
        return Outcome.COMPLETED, record

    def failure(self, error: BatchJobsError) -> tuple[Outcome, dict[str, Any]]:
        return Outcome.FAILED, wire.failure_line(self.line.custom_id, self.context.id, error)


def line_context(claim: Claim, line: ShardLine) -> LineContext:
    """What makes the answer to a line the same whenever and in whatever company it runs."""
    words = f"{claim.seed}:{line.number}:{line.custom_id}"
    digest = hashlib.blake2b(words.encode(), digest_size=8).digest()
    return LineContext(
        id=line_digest(claim.job_id, line.number),
        created=int(claim.created_at.timestamp()),
        seed=int.from_bytes(digest) >> 1,
    )


def _isolated(step: Callable[[], _T], line: ShardLine) -> _T:
    """Let a fault of ours fail the line that met it, not the thousands beside it."""
    try:
        return step()
    except BatchJobsError:
        raise
    except Exception as fault:
        logger.exception("line %d met a fault of the server", line.number)
        raise BatchJobsError("The server had an error while processing this request.") from fault
