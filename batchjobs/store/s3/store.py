"""The object store in a bucket."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import BinaryIO, Self

from batchjobs.settings import Settings
from batchjobs.store.base import ObjectWriter
from batchjobs.store.layout import check_key, check_prefix
from batchjobs.store.s3.bucket import Bucket
from batchjobs.store.s3.failures import translated
from batchjobs.store.s3.reader import Reader
from batchjobs.store.s3.writer import Writer, put_new

STALE = timedelta(days=1)
"""Age at which an unfinished upload can only be what a killed process left."""
BUFFER_BYTES = 1 << 20


class S3Store:
    """Safe for many processes of many hosts. Needs conditional writes (`If-None-Match`)."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    @classmethod
    def connect(cls, settings: Settings) -> Self:
        """The store of `settings.store_url`, swept.

        Raises:
            UsageError: a setting cannot be right.
            StoreError: the bucket cannot be used.
        """
        store = cls(Bucket.of(settings))
        store.sweep()
        return store

    def put(self, key: str, data: bytes) -> None:
        put_new(self._bucket, check_key(key), data)

    @contextmanager
    def create(self, key: str) -> Iterator[ObjectWriter]:
        writer = Writer(self._bucket, check_key(key))
        try:
            yield writer
            writer.finish()
        except BaseException:
            writer.abort()
            raise

    def open(self, key: str, *, start: int = 0, end: int | None = None) -> BinaryIO:
        return io.BufferedReader(Reader(self._bucket, check_key(key), start, end), BUFFER_BYTES)

    def size(self, key: str) -> int:
        check_key(key)
        with translated("read", self._bucket.locate(key)):
            head = self._bucket.client.head_object(**self._bucket.address(key))
        return int(head["ContentLength"])

    def list(self, prefix: str) -> Iterator[str]:
        for key, _ in self._entries(prefix):
            yield key

    def list_older(self, prefix: str, seconds: float) -> Iterator[str]:
        latest = datetime.now(UTC) - timedelta(seconds=seconds)
        for key, modified in self._entries(prefix):
            if modified <= latest:
                yield key

    def delete(self, key: str) -> None:
        check_key(key)
        with translated("delete", self._bucket.locate(key)):
            self._bucket.client.delete_object(**self._bucket.address(key))

    def locate(self, key: str) -> str:
        return self._bucket.locate(check_key(key))

    def sweep(self) -> None:
        """Abort uploads that nobody finishes any more; also shows whether the bucket is there."""
        with translated("use", self._bucket.locate("")):
            pages = self._bucket.client.get_paginator("list_multipart_uploads").paginate(
                Bucket=self._bucket.name, Prefix=self._bucket.prefix
            )
            stale = datetime.now(UTC) - STALE
            for page in pages:
                for upload in page.get("Uploads", ()):
                    if upload["Initiated"] < stale:
                        self._abort(upload["Key"], upload["UploadId"])

    def _entries(self, prefix: str) -> Sequence[tuple[str, datetime]]:
        """Key and time of making, in order of keys. S3 lists in that order; servers that keep
        objects in folders list folder by folder."""
        check_prefix(prefix)
        pages = self._bucket.client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket.name, Prefix=f"{self._bucket.prefix}{prefix}"
        )
        with translated("list", self._bucket.locate(prefix)):
            entries = [entry for page in pages for entry in page.get("Contents", ())]
        return sorted(
            (entry["Key"].removeprefix(self._bucket.prefix), entry["LastModified"])
            for entry in entries
        )

    def _abort(self, key: str, upload: str) -> None:
        self._bucket.client.abort_multipart_upload(
            Bucket=self._bucket.name, Key=key, UploadId=upload
        )
