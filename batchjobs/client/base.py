"""What commands ask, and the values they ask with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Protocol, Self

from batchjobs.client.batch import Batch, Page

if TYPE_CHECKING:
    from batchjobs.client.schedules import Schedules
    from batchjobs.deployment import Deployment


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is asked of a file of requests. `model` takes the place of every line's; `seed` draws
    the answers of lines that have none; of jobs due in the same hour, the greater `priority` goes
    first."""

    filename: str
    endpoint: str
    window: str = "24h"
    model: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelName:
    """A model that lines may ask for. Where its weights are is not for everyone to know."""

    name: str
    aliases: tuple[str, ...]
    source: str | None
    revision: str | None


class Client(Protocol):
    """Raises NotFoundError for an unknown job or file, ConflictError where its state does not allow
    what is asked, InvalidRequestError for an order that cannot be; and StoreError, DatabaseError
    or, of a server, RemoteError. A context manager that closes what it has open."""

    @property
    def deployment(self) -> Deployment | None:
        """What lies here, for work in this process; None if a server has the data."""

    @property
    def schedules(self) -> Schedules: ...

    def submit(self, stream: BinaryIO, order: Order) -> Batch:
        """Take in a file, from the start of a seekable stream, and make a job of it, which is
        still to be validated."""

    def batch(self, job_id: str) -> Batch: ...

    def wait(self, batch: Batch, *, seconds: float) -> Batch:
        """The job when it is another than `batch`, or as it is after so many seconds."""

    def advice(self, batch: Batch) -> str | None:
        """What one who is about to wait for a job that has not ended should know."""

    def page(self, *, limit: int, after: str | None = None) -> Page:
        """Jobs, the newest first, that follow the job `after`."""

    def cancel(self, job_id: str) -> Batch: ...

    def retry(self, job_id: str) -> Batch:
        """A new job of the lines of an ended one that have no answer."""

    def open(self, file_id: str) -> BinaryIO:
        """A file's bytes; the caller closes it."""

    def locate(self, file_id: str) -> str:
        """Where a person finds the file: a path or a URL without secrets."""

    def models(self) -> list[ModelName]: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
