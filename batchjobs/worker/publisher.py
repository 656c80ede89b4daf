"""Settles jobs beside the engine: finalizing a long one takes seconds in which steps go on."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from batchjobs.deployment import Deployment
from batchjobs.worker.tending import advance


class Publisher:
    """One job at a time, in a thread of its own. A context that at its end waits for all of them
    and raises what went wrong; after an error, only for the one under way. Any worker, or the
    caretaker of a server, goes on with the others."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="publisher")
        self._settling: list[Future[None]] = []

    def settle(self, job_id: str) -> None:
        """Publish the job if nothing of it is left to run."""
        self._settling.append(self._pool.submit(advance, self._deployment, job_id))

    def raise_failures(self) -> None:
        """What has gone wrong so far. Raises IntegrityError, StoreError, DatabaseError."""
        ended = [future for future in self._settling if future.done()]
        self._settling = [future for future in self._settling if future not in ended]
        for future in ended:
            future.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=error is not None)
        if error is None:
            self.raise_failures()
