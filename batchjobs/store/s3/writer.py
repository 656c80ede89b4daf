"""Objects that appear whole or not at all, once, whatever becomes of the requests and answers.

An answer may get lost, and a repeated request then finds the object that the first one made. So
every writer marks its object with a token of its own, and a failed request is judged by what is
there: an object of this token and size was made by this writer, any other was not.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from batchjobs.errors import ObjectExistsError, ObjectMissingError
from batchjobs.store.s3.bucket import Bucket
from batchjobs.store.s3.failures import FAILURES, failure, pause, status, translated

FIRST_PART_BYTES = 8 << 20
LAST_PART_BYTES = 1 << 30
PARTS_PER_SIZE = 800
"""The parts' size doubles after so many, up to LAST_PART_BYTES: the 10,000 parts that S3 allows
hold the 5 TiB that it allows an object, and the parts of a file of some GB stay small."""
CONFLICT_ATTEMPTS = 5
TOKEN = "batchjobs-upload"  # noqa: S105
CHECKSUM = "ChecksumCRC32"


@dataclass(frozen=True, slots=True)
class Proof:
    """By what a writer knows its own object."""

    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def metadata(self) -> dict[str, str]:
        return {TOKEN: self.token}

    def holds(self, head: dict[str, Any], size: int) -> bool:
        return bool(head["Metadata"].get(TOKEN) == self.token and head["ContentLength"] == size)


def put_new(bucket: Bucket, key: str, data: bytes) -> None:
    """Create an object by one request. Raises ObjectExistsError, StoreError."""
    proof = Proof()
    put = partial(
        bucket.client.put_object,
        **bucket.address(key),
        Body=data,
        Metadata=proof.metadata,
        IfNoneMatch="*",
    )
    try:
        _through_conflicts(put)
    except FAILURES as failed:
        _judge(bucket, key, proof, len(data), failed)


class Writer:
    """An object in the making: by one request if it is small, else by parts sent as they fill."""

    def __init__(self, bucket: Bucket, key: str) -> None:
        self._bucket = bucket
        self._key = key
        self._proof = Proof()
        self._buffer = bytearray()
        self._size = 0
        self._upload: str | None = None
        self._parts: list[dict[str, Any]] = []

    def write(self, data: bytes) -> int:
        self._buffer += data
        while len(self._buffer) >= (size := part_bytes(len(self._parts) + 1)):
            self._send(size)
        return len(data)

    def finish(self) -> None:
        """Make the object appear. Raises ObjectExistsError, StoreError."""
        if self._upload is None:
            put_new(self._bucket, self._key, bytes(self._buffer))
            return
        if self._buffer:
            self._send(len(self._buffer))
        try:
            _through_conflicts(self._complete)
        except FAILURES as failed:
            # A completion still under way would otherwise make the object after we looked.
            self.abort()
            _judge(self._bucket, self._key, self._proof, self._size, failed)

    def abort(self) -> None:
        """Drop the parts. What cannot be dropped now, `S3Store.sweep` finds later."""
        if self._upload is not None:
            with suppress(*FAILURES):
                self._bucket.client.abort_multipart_upload(**self._address())
            self._upload = None

    def _send(self, size: int) -> None:
        data = bytes(memoryview(self._buffer)[:size])
        del self._buffer[:size]
        number = len(self._parts) + 1
        with translated("write", self._bucket.locate(self._key)):
            if self._upload is None:
                self._upload = self._begin()
            answer = self._bucket.client.upload_part(
                **self._address(), PartNumber=number, Body=data
            )
        part = {"PartNumber": number, "ETag": answer["ETag"]}
        if CHECKSUM in answer:
            part[CHECKSUM] = answer[CHECKSUM]
        self._parts.append(part)
        self._size += size

    def _begin(self) -> str:
        address = self._bucket.address(self._key)
        answer = self._bucket.client.create_multipart_upload(
            **address, Metadata=self._proof.metadata
        )
        return str(answer["UploadId"])

    def _complete(self) -> object:
        return self._bucket.client.complete_multipart_upload(
            **self._address(), MultipartUpload={"Parts": self._parts}, IfNoneMatch="*"
        )

    def _address(self) -> dict[str, Any]:
        return {**self._bucket.address(self._key), "UploadId": self._upload}


def part_bytes(number: int) -> int:
    """Size of part `number`, counted from 1; the last one of an object may be smaller."""
    return min(LAST_PART_BYTES, FIRST_PART_BYTES << ((number - 1) // PARTS_PER_SIZE))


def _through_conflicts(request: Callable[[], object]) -> None:
    """409 says that another request on the key was under way, and that nothing was done."""
    for attempt in range(1, CONFLICT_ATTEMPTS):
        try:
            request()
        except FAILURES as failed:
            if status(failed) != 409:
                raise
            pause(attempt)
        else:
            return
    request()


def _judge(bucket: Bucket, key: str, proof: Proof, size: int, failed: Exception) -> None:
    """Return if the object was made all the same; raise what it is otherwise."""
    place = bucket.locate(key)
    try:
        with translated("write", place):
            found = bucket.client.head_object(**bucket.address(key))
    except ObjectMissingError:
        if status(failed) != 412:
            raise failure("write", place, failed) from failed
    else:
        if proof.holds(found, size):
            return
    raise ObjectExistsError(f"The object {key} exists already.") from failed
