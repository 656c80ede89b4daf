"""One request line on its way through the engine: prepared, completed, answered."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from batchjobs import wire
from batchjobs.endpoints.base import Endpoint, LineContext, ModelContext, check_task
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

    def prepare(self) -> list[Request]:
        """The engine requests of the line. Raises BatchJobsError when it cannot run."""
        requests = _isolated(self._requests, self.line)
        self.expected = len(requests)
        return requests

    def _requests(self) -> list[Request]:
        check_task(self.endpoint, self.model)
        return self.endpoint.prepare(self.line.body, self.context, self.model)

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


@dataclass(frozen=True, slots=True)
class PreparedLine:
    """A line and the engine requests that answer it, or why there are none."""

    work: LineWork
    requests: Sequence[Request] = ()
    error: BatchJobsError | None = None


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
