"""The S3 store on a network that loses requests, answers and bodies. The server is real."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ConnectionClosedError
from botocore.retries.quota import RetryQuota

from batchjobs.errors import ObjectExistsError, ObjectMissingError, StoreError
from batchjobs.store.s3.bucket import REQUEST_ATTEMPTS, Bucket
from batchjobs.store.s3.reader import RESUMES
from batchjobs.store.s3.store import S3Store
from batchjobs.store.s3.writer import CONFLICT_ATTEMPTS, FIRST_PART_BYTES, TOKEN
from tests.support.s3_faults import (
    Fault,
    Faults,
    Send,
    after,
    cut_body,
    error,
    error_when_done,
    lost_answer,
    lost_request,
    passes,
)

KEY = "files/a.jsonl"
BIG = random.Random(7).randbytes(FIRST_PART_BYTES + 100_000)
OTHER = bytes(reversed(BIG))
SERVER_TROUBLE = [
    lost_request,
    error(500, "InternalError"),
    error(503, "SlowDown"),
    error(503, "ServiceUnavailable"),
]
CONFLICT = error(409, "ConditionalRequestConflict")
NO_SUCH_UPLOAD = error(404, "NoSuchUpload")


@pytest.fixture(autouse=True)
def retries_are_immediate(s3_store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """And as many as told: a client retries less the more it failed, and these tests share one."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(RetryQuota, "acquire", lambda self, amount: True)


@pytest.fixture
def faults(bucket: Bucket) -> Iterator[Faults]:
    with Faults(bucket.client).active() as faults:
        yield faults


def write(store: S3Store, data: bytes) -> None:
    """Like the service: in pieces, by as many requests as it takes."""
    with store.create(KEY) as writer:
        for start in range(0, len(data), 1 << 20):
            writer.write(data[start : start + (1 << 20)])


def content(store: S3Store) -> bytes:
    with store.open(KEY) as stream:
        return stream.read()


def uploads(bucket: Bucket) -> list[Any]:
    """What is unfinished below the prefix."""
    found = bucket.client.list_multipart_uploads(Bucket=bucket.name, Prefix=bucket.prefix)
    return list(found.get("Uploads", []))


@pytest.mark.parametrize("trouble", SERVER_TROUBLE)
def test_put_gets_over_passing_trouble(s3_store: S3Store, faults: Faults, trouble: Fault) -> None:
    faults.plan("PutObject", trouble, trouble)
    s3_store.put(KEY, b"data")
    assert content(s3_store) == b"data"
    assert len(faults.requests["PutObject"]) == 3


@pytest.mark.parametrize("operation", ["CreateMultipartUpload", "UploadPart"])
@pytest.mark.parametrize("trouble", SERVER_TROUBLE)
def test_upload_gets_over_passing_trouble(
    s3_store: S3Store, faults: Faults, operation: str, trouble: Fault
) -> None:
    faults.plan(operation, trouble)
    write(s3_store, BIG)
    assert content(s3_store) == BIG


def test_put_whose_answer_is_lost_knows_its_object(s3_store: S3Store, faults: Faults) -> None:
    faults.plan("PutObject", lost_answer)
    s3_store.put(KEY, b"data")
    assert content(s3_store) == b"data"
    assert len(faults.requests["PutObject"]) == 2  # and the second found the key taken


@pytest.mark.parametrize("trouble", [lost_answer, error_when_done(500, "InternalError")])
def test_put_that_never_gets_an_answer_knows_its_object(
    s3_store: S3Store, faults: Faults, trouble: Fault
) -> None:
    faults.plan("PutObject", *[trouble] * REQUEST_ATTEMPTS)
    s3_store.put(KEY, b"data")
    assert content(s3_store) == b"data"


def test_put_does_not_take_anothers_object_for_its_own(s3_store: S3Store, faults: Faults) -> None:
    s3_store.put(KEY, b"same")
    faults.plan("PutObject", lost_answer)
    with pytest.raises(ObjectExistsError):
        s3_store.put(KEY, b"same")
    faults.plan("PutObject", *[lost_request] * REQUEST_ATTEMPTS)
    with pytest.raises(ObjectExistsError):
        s3_store.put(KEY, b"same")


@pytest.mark.parametrize("trouble", SERVER_TROUBLE)
def test_put_that_never_arrives_is_an_error_and_no_object(
    s3_store: S3Store, faults: Faults, trouble: Fault
) -> None:
    faults.plan("PutObject", *[trouble] * REQUEST_ATTEMPTS)
    with pytest.raises(StoreError, match=rf"cannot write s3://.*{KEY}: [^.]*\.$"):
        s3_store.put(KEY, b"data")
    assert list(s3_store.list("")) == []


def test_put_does_not_take_half_an_object_for_its_own(
    s3_store: S3Store, bucket: Bucket, faults: Faults
) -> None:
    def half_of_it(request: Any, _: Send) -> AWSResponse:
        token = request.headers[f"x-amz-meta-{TOKEN}"].decode()
        bucket.client.put_object(**bucket.address(KEY), Body=b"da", Metadata={TOKEN: token})
        raise ConnectionClosedError(endpoint_url=request.url)

    faults.plan("PutObject", half_of_it)
    with pytest.raises(ObjectExistsError):
        s3_store.put(KEY, b"data")


def test_put_on_a_key_that_is_freed_meanwhile_was_late_all_the_same(
    s3_store: S3Store, faults: Faults
) -> None:
    s3_store.put(KEY, b"first")
    faults.plan("HeadObject", after(lambda: s3_store.delete(KEY), passes))
    with pytest.raises(ObjectExistsError):
        s3_store.put(KEY, b"second")


def test_put_that_cannot_be_judged_is_an_error(s3_store: S3Store, faults: Faults) -> None:
    faults.plan("PutObject", lost_answer)
    faults.plan("HeadObject", *[lost_request] * REQUEST_ATTEMPTS)
    with pytest.raises(StoreError, match="connection failed") as failed:
        s3_store.put(KEY, b"data")
    assert type(failed.value) is StoreError


def test_put_tries_again_after_a_conflict(s3_store: S3Store, faults: Faults) -> None:
    faults.plan("PutObject", *[CONFLICT] * (CONFLICT_ATTEMPTS - 1))
    s3_store.put(KEY, b"data")
    assert content(s3_store) == b"data"


def test_put_gives_up_after_many_conflicts(s3_store: S3Store, faults: Faults) -> None:
    faults.plan("PutObject", *[CONFLICT] * 99)
    with pytest.raises(StoreError, match="other writers of the same object interfere"):
        s3_store.put(KEY, b"data")
    assert len(faults.requests["PutObject"]) == CONFLICT_ATTEMPTS


def test_loser_of_a_conflict_finds_the_winners_object(s3_store: S3Store, faults: Faults) -> None:
    faults.plan("PutObject", after(lambda: s3_store.put(KEY, b"won"), CONFLICT), passes)
    with pytest.raises(ObjectExistsError):
        s3_store.put(KEY, b"lost")
    assert content(s3_store) == b"won"


@pytest.mark.parametrize(
    "trouble",
    [
        [error(200, "InternalError")],
        [error_when_done(200, "InternalError")],
        [error(503, "SlowDown"), error(500, "InternalError")],
        [lost_request],
        [lost_answer],
        [lost_answer, NO_SUCH_UPLOAD],
        [error_when_done(200, "InternalError"), NO_SUCH_UPLOAD],
        [lost_answer] * REQUEST_ATTEMPTS,
        [CONFLICT, CONFLICT],
        [lost_answer, CONFLICT, NO_SUCH_UPLOAD],
    ],
)
def test_upload_is_completed_whatever_the_answers(
    s3_store: S3Store, bucket: Bucket, faults: Faults, trouble: list[Fault]
) -> None:
    faults.plan("CompleteMultipartUpload", *trouble)
    write(s3_store, BIG)
    assert content(s3_store) == BIG
    assert uploads(bucket) == []


@pytest.mark.parametrize(
    "trouble", [*SERVER_TROUBLE, error(200, "InternalError"), CONFLICT, NO_SUCH_UPLOAD]
)
def test_upload_that_cannot_be_completed_leaves_nothing(
    s3_store: S3Store, bucket: Bucket, faults: Faults, trouble: Fault
) -> None:
    faults.plan("CompleteMultipartUpload", *[trouble] * 9)
    with pytest.raises(StoreError, match=rf"cannot write s3://.*{KEY}: [^.]*\.$"):
        write(s3_store, BIG)
    assert list(s3_store.list("")) == []
    assert uploads(bucket) == []


def test_upload_that_failed_is_not_completed_later(
    s3_store: S3Store, bucket: Bucket, faults: Faults
) -> None:
    address = bucket.address(KEY)

    def late_completion(_: Any, send: Send) -> AWSResponse:
        nothing_there = send()
        for upload in uploads(bucket):
            address["UploadId"] = upload["UploadId"]
            parts = bucket.client.list_parts(**address)["Parts"]
            found = [{"PartNumber": part["PartNumber"], "ETag": part["ETag"]} for part in parts]
            bucket.client.complete_multipart_upload(**address, MultipartUpload={"Parts": found})
        return nothing_there

    faults.plan("CompleteMultipartUpload", *[lost_request] * REQUEST_ATTEMPTS)
    faults.plan("HeadObject", late_completion)
    with pytest.raises(StoreError, match="cannot write"):
        write(s3_store, BIG)
    assert list(s3_store.list("")) == []


@pytest.mark.parametrize("trouble", [passes, lost_answer, NO_SUCH_UPLOAD, CONFLICT])
def test_upload_does_not_take_anothers_object_for_its_own(
    s3_store: S3Store, bucket: Bucket, faults: Faults, trouble: Fault
) -> None:
    another = after(lambda: s3_store.put(KEY, OTHER), trouble)
    faults.plan("CompleteMultipartUpload", another)
    with pytest.raises(ObjectExistsError, match=f"{KEY} exists already"):
        write(s3_store, BIG)
    assert content(s3_store) == OTHER
    assert uploads(bucket) == []


@pytest.mark.parametrize("operation", ["CreateMultipartUpload", "UploadPart"])
def test_part_that_never_arrives_ends_the_upload(
    s3_store: S3Store, bucket: Bucket, faults: Faults, operation: str
) -> None:
    faults.plan(operation, *[lost_request] * REQUEST_ATTEMPTS)
    with pytest.raises(StoreError, match="cannot write"):
        write(s3_store, BIG)
    assert list(s3_store.list("")) == []
    assert uploads(bucket) == []


def test_error_of_the_caller_ends_the_upload(s3_store: S3Store, bucket: Bucket) -> None:
    def write_half() -> None:
        with s3_store.create(KEY) as writer:
            writer.write(BIG)
            assert len(uploads(bucket)) == 1
            raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        write_half()
    assert uploads(bucket) == []


def test_error_of_the_caller_is_the_one_that_is_raised(s3_store: S3Store, faults: Faults) -> None:
    faults.plan("AbortMultipartUpload", *[lost_request] * REQUEST_ATTEMPTS)

    def write_half() -> None:
        with s3_store.create(KEY) as writer:
            writer.write(BIG)
            raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        write_half()


@pytest.mark.parametrize("silently", [False, True])
@pytest.mark.parametrize(("start", "end"), [(0, None), (1_000, None), (1_000, 3_000_000)])
def test_reader_goes_on_where_a_body_was_cut(
    s3_store: S3Store, faults: Faults, silently: bool, start: int, end: int | None
) -> None:
    write(s3_store, BIG)
    cuts = [cut_body(count, silently=silently) for count in (1, 2_000_000, 0, 5)]
    faults.plan("GetObject", *cuts)
    with s3_store.open(KEY, start=start, end=end) as stream:
        assert stream.read() == BIG[start:end]
    resumed = faults.requests["GetObject"][2].headers
    last = (len(BIG) if end is None else end) - 1
    assert resumed["Range"] == f"bytes={start + 2_000_001}-{last}".encode()
    assert resumed["If-Match"]


def test_reader_gives_up_when_nothing_more_comes(s3_store: S3Store, faults: Faults) -> None:
    s3_store.put(KEY, b"0123456789")
    faults.plan("GetObject", cut_body(4), *[cut_body(0)] * 99)
    with (
        s3_store.open(KEY) as stream,
        pytest.raises(StoreError, match=r"cannot read s3://.*\(?again and again"),
    ):
        stream.read()
    assert len(faults.requests["GetObject"]) == 1 + RESUMES


def test_reader_does_not_go_on_in_another_object(s3_store: S3Store, faults: Faults) -> None:
    s3_store.put(KEY, b"0123456789")
    faults.plan("GetObject", cut_body(4))
    with s3_store.open(KEY) as stream:
        s3_store.delete(KEY)
        s3_store.put(KEY, b"abcdefghij")
        with pytest.raises(StoreError, match="it was replaced meanwhile"):
            stream.read()


def test_reader_of_a_deleted_object_says_so_when_its_body_is_cut(
    s3_store: S3Store, faults: Faults
) -> None:
    s3_store.put(KEY, b"0123456789")
    faults.plan("GetObject", cut_body(4))
    with s3_store.open(KEY) as stream:
        s3_store.delete(KEY)
        with pytest.raises(ObjectMissingError, match=KEY):
            stream.read()
