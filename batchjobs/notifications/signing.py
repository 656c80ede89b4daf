"""Signatures of webhooks, as Standard Webhooks 1.0.0 has them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

from pydantic import SecretStr

PREFIX = "whsec_"
MIN_KEY_BYTES, MAX_KEY_BYTES = 24, 64


def read_keys(secrets: SecretStr) -> SecretStr:
    """Checks one or two secrets, apart by a space. Raises ValueError, without the secret."""
    for secret in _words(secrets):
        _key(secret)
    if not 1 <= len(_words(secrets)) <= 2:
        raise ValueError("expected one secret, or the new and the old one apart by a space")
    return secrets


def sign(secrets: SecretStr, *, event_id: str, timestamp: int, body: bytes) -> str:
    """The value of `webhook-signature`: one for each secret, so that a secret can be changed."""
    signed = b".".join((event_id.encode(), str(timestamp).encode(), body))
    return " ".join(_signature(_key(secret), signed) for secret in _words(secrets))


def _signature(key: bytes, signed: bytes) -> str:
    return f"v1,{base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()}"


def _words(secrets: SecretStr) -> Sequence[str]:
    return secrets.get_secret_value().split()


def _key(secret: str) -> bytes:
    wrong = ValueError(
        f"expected {PREFIX} and {MIN_KEY_BYTES} to {MAX_KEY_BYTES} random bytes in base64"
    )
    if not secret.startswith(PREFIX):
        raise wrong
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        raise wrong from None  # the cause may show the secret
    if not MIN_KEY_BYTES <= len(key) <= MAX_KEY_BYTES:
        raise wrong
    return key
