"""Where the objects are and what they are reached with. Loads boto3: import it only when needed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from batchjobs.errors import StoreError, UsageError
from batchjobs.settings import Settings
from batchjobs.store.layout import check_key

CONNECT_TIMEOUT_SECONDS = 10
READ_TIMEOUT_SECONDS = 60
REQUEST_ATTEMPTS = 5
MAX_CONNECTIONS = 50
DEFAULT_REGION = "us-east-1"
"""What servers that know no regions expect in a signature."""

_URL = re.compile(r"s3://(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{2,254})(/(?P<prefix>.*))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """`prefix` begins every key there: empty, or ends in a slash. `client` is boto3's, which
    threads may share."""

    client: Any
    name: str
    prefix: str

    def address(self, key: str) -> dict[str, str]:
        """The object's place as arguments of a client's method."""
        return {"Bucket": self.name, "Key": f"{self.prefix}{key}"}

    def locate(self, key: str) -> str:
        return f"s3://{self.name}/{self.prefix}{key}"

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """That of `store_url`. Credentials come from where boto3 looks for them: environment,
        profile, container or instance role.

        Raises:
            UsageError: a value cannot be right; names its variable.
            StoreError: boto3's own configuration cannot be used.
        """
        name, prefix = parse_url(settings.store_url or "")
        _check_endpoint(settings.s3_endpoint_url)
        try:
            client = connect(
                endpoint_url=settings.s3_endpoint_url,
                region=settings.s3_region,
                checksums=settings.s3_checksums,
            )
        except (BotoCoreError, ValueError) as failed:
            reason = str(failed).rstrip(".")
            raise StoreError(f"The S3 client cannot be set up: {reason}.") from failed
        return cls(client=client, name=name, prefix=prefix)


def connect(
    *,
    endpoint_url: str | None,
    region: str | None,
    checksums: str,
    attempts: int = REQUEST_ATTEMPTS,
) -> Any:
    """A client. Nothing is sent yet."""
    session = boto3.session.Session()
    if region is None and session.region_name is None and endpoint_url is not None:
        region = DEFAULT_REGION
    config = Config(
        signature_version="s3v4",
        s3={"addressing_style": "auto" if endpoint_url is None else "path"},
        connect_timeout=CONNECT_TIMEOUT_SECONDS,
        read_timeout=READ_TIMEOUT_SECONDS,
        tcp_keepalive=True,
        retries={"mode": "standard", "total_max_attempts": attempts},
        max_pool_connections=MAX_CONNECTIONS,
        request_checksum_calculation=checksums,
        response_checksum_validation=checksums,
    )
    return session.client("s3", endpoint_url=endpoint_url, region_name=region, config=config)


def parse_url(url: str) -> tuple[str, str]:
    """The bucket's name and the prefix of all keys. Raises UsageError."""
    found = _URL.fullmatch(url)
    prefix = (found["prefix"] or "").strip("/") if found else ""
    try:
        if found is None:
            raise StoreError("not of that form")
        return found["name"], f"{check_key(prefix)}/" if prefix else ""
    except StoreError:
        # The value is not repeated: it may hold a secret that belongs elsewhere.
        raise UsageError(
            "BATCHJOBS_STORE_URL is not usable: it must be s3://bucket or s3://bucket/prefix, with"
            " letters, digits and ._- in its names."
        ) from None


def _check_endpoint(url: str | None) -> None:
    if url is None:
        return
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise UsageError(
            "BATCHJOBS_S3_ENDPOINT_URL is not usable: it must be http://host:port or https://host,"
            " without credentials."
        )
