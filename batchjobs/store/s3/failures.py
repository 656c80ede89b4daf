"""What boto3 raises, in sentences of ours. Servers' own words are left out: they name accounts."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    PartialCredentialsError,
    ReadTimeoutError,
)

from batchjobs.errors import ObjectMissingError, StoreError

FAILURES = (ClientError, BotoCoreError)
PAUSE_SECONDS = 0.1

_CODES = {
    "NoSuchBucket": "the bucket does not exist",
    "AccessDenied": "the credentials in use do not allow it",
    "403": "the credentials in use do not allow it",
    "InvalidAccessKeyId": "the credentials in use are not known there",
    "SignatureDoesNotMatch": "the credentials in use are not right",
    "ExpiredToken": "the credentials in use have expired",
    "RequestTimeTooSkewed": "this machine's clock is wrong",
    "PermanentRedirect": "the bucket is in another region; set BATCHJOBS_S3_REGION",
    "AuthorizationHeaderMalformed": "the bucket is in another region; set BATCHJOBS_S3_REGION",
    "NotImplemented": "the server lacks what this needs, such as conditional writes",
    "NoSuchUpload": "the upload was aborted by another process",
    "ConditionalRequestConflict": "other writers of the same object interfere",
}
_MISSING = {"NoSuchKey", "NotFound", "404"}


@contextmanager
def translated(verb: str, place: str) -> Iterator[None]:
    """Raises StoreError that names the `place`, or ObjectMissingError."""
    try:
        yield
    except FAILURES as failed:
        raise failure(verb, place, failed) from failed


def failure(verb: str, place: str, failed: Exception) -> StoreError:
    if code(failed) in _MISSING:
        return ObjectMissingError(f"No object {place} in the store.")
    return StoreError(f"The object store cannot {verb} {place}: {_reason(failed)}.")


def code(failed: Exception) -> str:
    """The server's error code; empty if there was no answer."""
    return str(failed.response["Error"].get("Code", "")) if isinstance(failed, ClientError) else ""


def status(failed: Exception) -> int | None:
    """The HTTP status of the answer."""
    if not isinstance(failed, ClientError):
        return None
    found = failed.response["ResponseMetadata"].get("HTTPStatusCode")
    return found if isinstance(found, int) else None


def pause(attempt: int) -> None:
    """Wait before attempt number `attempt` + 1: longer each time, and never in step with others."""
    time.sleep(random.uniform(0, PAUSE_SECONDS * 2**attempt))  # noqa: S311


def _reason(failed: Exception) -> str:
    if isinstance(failed, ClientError):
        return _CODES.get(code(failed), f"it answered {code(failed)} (HTTP {status(failed)})")
    if isinstance(failed, NoCredentialsError | PartialCredentialsError):
        return "there are no S3 credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    if isinstance(failed, EndpointConnectionError | ConnectTimeoutError):
        return "the server cannot be reached"
    if isinstance(failed, ReadTimeoutError):
        return "the server does not answer"
    return f"the connection failed ({type(failed).__name__})"
