"""Where events go, as a person sets it."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, SecretStr

from batchjobs.notifications.signing import read_keys


def _check_webhook(url: str) -> str:
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ValueError("it has a user or password in it; the signature is what proves the sender")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError("expected http://HOST:PORT/PATH or https://HOST/PATH")
    if not url.isprintable() or " " in url:
        raise ValueError("expected a URL without spaces")
    return url


def _check_smtp(url: SecretStr) -> SecretStr:
    wrong = ValueError("expected smtp://HOST:PORT or smtps://USER:PASSWORD@HOST:PORT")
    try:
        parts = urlsplit(url.get_secret_value())
        is_fine = parts.scheme in ("smtp", "smtps") and parts.hostname and parts.port != 0
    except ValueError:
        raise wrong from None  # the cause may show the password
    if not is_fine:
        raise wrong
    return url


WebhookUrl = Annotated[str, AfterValidator(_check_webhook)]
WebhookSecret = Annotated[SecretStr, AfterValidator(read_keys)]
SmtpUrl = Annotated[SecretStr, AfterValidator(_check_smtp)]
