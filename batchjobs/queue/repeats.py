"""Create requests that are sent again because their answer was lost: one job, not two."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import orjson
from sqlalchemy import select
from sqlalchemy.orm import Session

from batchjobs.db import hold_lock
from batchjobs.errors import ConflictError
from batchjobs.models import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestName:
    """Digests in hex of the caller's key for a request, and of what the request asks for."""

    key: str
    asked: str

    @classmethod
    def of(cls, key: str, asked: Mapping[str, Any]) -> Self:
        body = orjson.dumps(asked, option=orjson.OPT_SORT_KEYS)
        return cls(
            key=hashlib.sha256(key.encode(errors="replace")).hexdigest(),
            asked=hashlib.sha256(body).hexdigest(),
        )


def earlier(session: Session, name: RequestName, *, tenant: str) -> Job | None:
    """The job that the tenant's request has made before. Until the transaction ends, no other
    makes one.

    Raises ConflictError if another request came under the key.
    """
    hold_lock(session, f"request.{name.key}.{tenant}")
    job = session.scalar(select(Job).where(Job.tenant == tenant, Job.request_key == name.key))
    if job is not None and job.request_digest != name.asked:
        raise ConflictError(
            f"The batch '{job.id}' was created under this Idempotency-Key by a request that asked"
            " for something else. A new request needs a new key.",
            code="idempotency_key_reused",
        )
    return job
