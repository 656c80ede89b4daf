"""API keys: who may use the HTTP API, and as which tenant.

| of a secret | where |
|---|---|
| itself | nowhere: it is shown once, to whoever creates it |
| its SHA-256 | the database; keys are found by it |
| its first and last characters | the database, lists and refusals, for a person to tell it by |

A secret is 256 random bits, which nobody finds by trying, so that its digest need not be slow as
one of a password. Looking the digest up takes as long for a near miss as for any other: what the
time of an index tells is of the digest, from which no secret follows.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from batchjobs.clock import Clock
from batchjobs.errors import NotFoundError, UsageError
from batchjobs.ids import new_key_id
from batchjobs.models import DEFAULT_TENANT, ApiKey

PREFIX = "bj-"
"""What tells our secrets from other services'."""
MAX_NAME_CHARS = 64
USE_NOTED_EVERY = timedelta(hours=1)

_SECRET_BYTES = 32
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SHOWN_START, _SHOWN_END = 5, 4
_MIN_MASKED_CHARS = 24
"""Of a shorter secret, what is shown would be too much of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """A key that was just created: the only time that its secret is known."""

    key: ApiKey
    secret: str = field(repr=False)


def create(session: Session, clock: Clock, *, name: str, tenant: str = DEFAULT_TENANT) -> NewKey:
    """`name` is a person's word for it and need not be unique. Raises UsageError."""
    _check(name, tenant)
    secret = PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
    key = ApiKey(
        id=new_key_id(),
        tenant=tenant,
        name=name,
        digest=_digest(secret),
        hint=mask(secret),
        created_at=clock.now(session),
    )
    session.add(key)
    session.flush()
    return NewKey(key=key, secret=secret)


def find(session: Session, secret: str) -> ApiKey | None:
    """The key with this secret, unless there is none or it is revoked."""
    return session.scalar(
        select(ApiKey).where(ApiKey.digest == _digest(secret), ApiKey.revoked_at.is_(None))
    )


def keys(session: Session) -> Sequence[ApiKey]:
    """All keys in the order of their creation, revoked ones too."""
    return session.scalars(select(ApiKey).order_by(ApiKey.created_at, ApiKey.id)).all()


def exist(session: Session) -> bool:
    """Whether there is a key that is not revoked."""
    usable = select(ApiKey.id).where(ApiKey.revoked_at.is_(None)).limit(1)
    return session.scalar(usable) is not None


def revoke(session: Session, clock: Clock, key_id: str) -> ApiKey:
    """Once and for all; asking again changes nothing. Raises NotFoundError."""
    session.execute(
        update(ApiKey)
        .where(ApiKey.id == key_id, ApiKey.revoked_at.is_(None))
        .values(revoked_at=clock.now(session))
    )
    key = session.get(ApiKey, key_id, populate_existing=True)
    if key is None:
        raise NotFoundError(f"No API key has the id '{key_id}'; list them: batchjobs keys list.")
    return key


def is_use_news(session: Session, clock: Clock, key: ApiKey) -> bool:
    """Whether the last noted use lies so far back that another is worth noting."""
    last = key.last_used_at
    return last is None or last <= clock.now(session) - USE_NOTED_EVERY


def note_use(session: Session, clock: Clock, key_id: str) -> None:
    now = clock.now(session)
    is_old = or_(ApiKey.last_used_at.is_(None), ApiKey.last_used_at <= now - USE_NOTED_EVERY)
    session.execute(update(ApiKey).where(ApiKey.id == key_id, is_old).values(last_used_at=now))


def mask(secret: str) -> str:
    """What may be shown of a secret, of ours or of another service: its ends, if it is long."""
    if len(secret) < _MIN_MASKED_CHARS or not (secret.isascii() and secret.isprintable()):
        return "***"
    return f"{secret[:_SHOWN_START]}***{secret[-_SHOWN_END:]}"


def _check(name: str, tenant: str) -> None:
    if not name.isprintable() or not 0 < len(name) <= MAX_NAME_CHARS:
        raise UsageError(f"A key's name has 1 to {MAX_NAME_CHARS} printable characters.")
    if not _TENANT.fullmatch(tenant):
        raise UsageError(
            "A tenant's name has 1 to 64 letters, digits, dots, hyphens and underscores,"
            f" and begins with a letter or digit, but {tenant!r} does not."
        )


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
