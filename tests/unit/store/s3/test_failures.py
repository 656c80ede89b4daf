from __future__ import annotations

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)

from batchjobs.errors import ObjectMissingError, StoreError
from batchjobs.store.s3.failures import failure, translated

PLACE = "s3://bucket/a"
URL = "http://host/bucket/a?X-Amz-Signature=secret"


def answer(code: str, status: int) -> ClientError:
    response = {
        "Error": {"Code": code, "Message": "User arn:aws:iam::1234:user/x with key AKIAX may not."},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return ClientError(response, "GetObject")


@pytest.mark.parametrize(
    ("failed", "reason"),
    [
        (answer("NoSuchBucket", 404), "the bucket does not exist"),
        (answer("AccessDenied", 403), "the credentials in use do not allow it"),
        (answer("403", 403), "the credentials in use do not allow it"),
        (answer("InvalidAccessKeyId", 403), "the credentials in use are not known there"),
        (answer("SlowDown", 503), "it answered SlowDown (HTTP 503)"),
        (EndpointConnectionError(endpoint_url=URL), "the server cannot be reached"),
        (ReadTimeoutError(endpoint_url=URL), "the server does not answer"),
        (ConnectionClosedError(endpoint_url=URL), "the connection failed (ConnectionClosedError)"),
        (
            NoCredentialsError(),
            "there are no S3 credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        ),
    ],
)
def test_failure_is_one_sentence_without_the_servers_words(failed: Exception, reason: str) -> None:
    found = failure("read", PLACE, failed)
    assert type(found) is StoreError
    assert found.message == f"The object store cannot read s3://bucket/a: {reason}."


@pytest.mark.parametrize("code", ["NoSuchKey", "404"])
def test_missing_object_is_an_error_of_its_own(code: str) -> None:
    with (
        pytest.raises(ObjectMissingError, match="No object s3://bucket/a in the store"),
        translated("read", PLACE),
    ):
        raise answer(code, 404)


def test_errors_of_others_pass_through_unchanged() -> None:
    with pytest.raises(ConnectionResetError), translated("read", PLACE):
        raise ConnectionResetError
