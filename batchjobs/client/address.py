"""Where a server is and what it knows its callers by, as a person sets them."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, SecretStr


def _check_url(url: str) -> str:
    """Without the `/v1` that clients of the API have behind it; "" is none."""
    if not url:
        return ""
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ValueError("it has a user or password in it; a key goes into BATCHJOBS_API_KEY")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError("expected http://HOST:PORT or https://HOST")
    if parts.query or parts.fragment or not url.isprintable() or " " in url:
        raise ValueError("expected a URL that ends with its host or a path")
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def _check_key(key: SecretStr) -> SecretStr:
    text = key.get_secret_value().strip()
    if not text.isascii() or " " in text or not text.isprintable():
        raise ValueError("expected one word of ASCII letters, digits and signs")
    return SecretStr(text)


ServerUrl = Annotated[str, AfterValidator(_check_url)]
ApiKey = Annotated[SecretStr, AfterValidator(_check_key)]
