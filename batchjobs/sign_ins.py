"""Browsers that are signed in: each has a secret of its own, which is worth no more than the API
key that it was given for, and nothing outside the page."""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from batchjobs.clock import Clock
from batchjobs.models import ApiKey, SignIn

LIFETIME = timedelta(days=14)

_SECRET_BYTES = 32


def create(session: Session, clock: Clock, key: ApiKey) -> str:
    """The secret of a new sign-in. Those whose time is up go."""
    now = clock.now(session)
    session.execute(delete(SignIn).where(SignIn.expires_at <= now))
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    session.add(SignIn(digest=_digest(secret), key_id=key.id, expires_at=now + LIFETIME))
    session.flush()
    return secret


def find_key(session: Session, clock: Clock, secret: str) -> ApiKey | None:
    """The key that the browser with this secret was let in with; None if it is revoked, or the
    sign-in has ended."""
    return session.scalar(
        select(ApiKey)
        .join(SignIn, SignIn.key_id == ApiKey.id)
        .where(
            SignIn.digest == _digest(secret),
            SignIn.expires_at > clock.now(session),
            ApiKey.revoked_at.is_(None),
        )
    )


def end(session: Session, secret: str) -> None:
    """The secret is worth nothing any more; an unknown one is fine."""
    session.execute(delete(SignIn).where(SignIn.digest == _digest(secret)))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
