"""What the S3 store does beyond the contract; the server is real."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from batchjobs.deployment import Deployment
from batchjobs.errors import ObjectExistsError, StoreError, UsageError
from batchjobs.settings import Settings
from batchjobs.store.s3.bucket import Bucket
from batchjobs.store.s3.store import STALE, S3Store
from batchjobs.store.s3.writer import FIRST_PART_BYTES
from tests.support.s3_faults import Faults
from tests.support.servers.s3 import S3Server


def settings_of(server: S3Server, home: Path, **changes: Any) -> Settings:
    values = {"store_url": server.url, "s3_endpoint_url": server.endpoint_url, **changes}
    return Settings.load(home=home, **values)


def uploads(bucket: Bucket) -> set[str]:
    found = bucket.client.list_multipart_uploads(Bucket=bucket.name, Prefix=bucket.prefix)
    return {upload["Key"].removeprefix(bucket.prefix) for upload in found.get("Uploads", [])}


@pytest.fixture
def pages_of_two(bucket: Bucket) -> Iterator[None]:
    def shorten(params: dict[str, Any], **_: object) -> None:
        params["MaxKeys"] = 2

    event = "provide-client-params.s3.ListObjectsV2"
    bucket.client.meta.events.register(event, shorten)
    yield
    bucket.client.meta.events.unregister(event, shorten)


@pytest.mark.usefixtures("pages_of_two")
def test_list_goes_through_all_pages(s3_store: S3Store, bucket: Bucket) -> None:
    keys = [f"files/{number}" for number in range(5)]
    for key in keys:
        s3_store.put(key, b"")
    with Faults(bucket.client).active() as faults:
        assert list(s3_store.list("files/")) == keys
        assert list(s3_store.list_older("files/", 0)) == keys
    assert len(faults.requests["ListObjectsV2"]) == 2 * 3


def test_small_object_takes_one_request(s3_store: S3Store, bucket: Bucket) -> None:
    with Faults(bucket.client).active() as faults, s3_store.create("a") as writer:
        writer.write(b"x" * (FIRST_PART_BYTES - 1))
    assert {name: len(sent) for name, sent in faults.requests.items()} == {"PutObject": 1}


@pytest.mark.parametrize("extra", [0, 1])
def test_object_is_sent_in_parts_as_it_grows(s3_store: S3Store, bucket: Bucket, extra: int) -> None:
    size = 2 * FIRST_PART_BYTES + extra
    with Faults(bucket.client).active() as faults, s3_store.create("a") as writer:
        for _ in range(size // 1000):
            writer.write(b"x" * 1000)
        assert len(faults.requests["UploadPart"]) == 1
        writer.write(b"x" * (size % 1000))
    assert len(faults.requests["UploadPart"]) == 2 + extra
    assert s3_store.size("a") == size


def test_memory_holds_some_parts_of_an_object_not_all(s3_store: S3Store) -> None:
    data = b"x" * 1_000_000
    tracemalloc.start()
    try:
        with s3_store.create("a") as writer:
            for _ in range(100):
                writer.write(data)
        with s3_store.open("a") as stream:
            while stream.read(1 << 20):
                pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * FIRST_PART_BYTES


def test_store_sees_only_what_is_below_its_prefix(s3_store: S3Store, bucket: Bucket) -> None:
    inner = S3Store(Bucket(client=bucket.client, name=bucket.name, prefix=f"{bucket.prefix}a/"))
    s3_store.put("ab", b"")
    inner.put("b", b"inner")
    assert list(inner.list("")) == ["b"]
    assert list(s3_store.list("")) == ["a/b", "ab"]


def test_sweep_aborts_only_uploads_of_yesterday_and_its_own(bucket: Bucket) -> None:
    below = Bucket(client=bucket.client, name=bucket.name, prefix=f"{bucket.prefix}mine/")
    for key in ("mine/files/old", "mine/files/young", "others/old"):
        bucket.client.create_multipart_upload(**bucket.address(key))

    def age(parsed: dict[str, Any], **_: object) -> None:
        for upload in parsed.get("Uploads", ()):
            if upload["Key"].endswith("old"):
                upload["Initiated"] -= STALE + timedelta(minutes=1)

    event = "after-call.s3.ListMultipartUploads"
    bucket.client.meta.events.register(event, age)
    try:
        S3Store(below).sweep()
    finally:
        bucket.client.meta.events.unregister(event, age)
    assert uploads(bucket) == {"mine/files/young", "others/old"}


def test_deployment_keeps_its_objects_in_the_bucket(s3: S3Server, tmp_path: Path) -> None:
    with Deployment.open(settings_of(s3, tmp_path)) as deployment:
        deployment.store.put("files/a", b"data")
        assert deployment.store.locate("files/a") == f"{s3.url}/files/a"
    with (
        Deployment.open(settings_of(s3, tmp_path)) as deployment,
        deployment.store.open("files/a") as stream,
    ):
        assert stream.read() == b"data"
    assert not (tmp_path / "store").exists()


def test_missing_bucket_is_named_at_the_start(s3: S3Server, tmp_path: Path) -> None:
    settings = settings_of(s3, tmp_path, store_url="s3://none-of-this-name/a")
    with pytest.raises(StoreError) as failed:
        Deployment.open(settings)
    assert failed.value.message == (
        "The object store cannot use s3://none-of-this-name/a/: the bucket does not exist."
    )


def test_unusable_url_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="BATCHJOBS_STORE_URL is not usable"):
        Deployment.open(Settings.load(home=tmp_path, store_url="/srv/objects"))


def test_wrong_credentials_are_an_error_that_does_not_repeat_them(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret")
    with pytest.raises(StoreError, match="the credentials in use are not right") as failed:
        Deployment.open(settings_of(s3, tmp_path))
    assert "wrong-secret" not in f"{failed.value} {failed.value.__cause__}"


def test_missing_credentials_are_an_error_with_what_to_do(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(StoreError, match="set AWS_ACCESS_KEY_ID"):
        Deployment.open(settings_of(s3, tmp_path))


def test_server_that_is_down_is_an_error(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    settings = settings_of(s3, tmp_path, s3_endpoint_url="http://127.0.0.1:9")
    with pytest.raises(StoreError, match="the server cannot be reached"):
        Deployment.open(settings)


@pytest.mark.parametrize("size", [1000, FIRST_PART_BYTES + 1000])
def test_checksums_are_sent_and_checked_when_asked_for(s3: S3Server, size: int) -> None:
    store = S3Store.connect(
        Settings.load(
            store_url=s3.url, s3_endpoint_url=s3.endpoint_url, s3_checksums="when_supported"
        )
    )
    data = b"x" * size
    with store.create("a") as writer:
        writer.write(data)
    with store.open("a") as stream:
        assert stream.read() == data
    with pytest.raises(ObjectExistsError):
        store.put("a", data)
