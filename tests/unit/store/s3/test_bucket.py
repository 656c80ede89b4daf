from __future__ import annotations

import os

import pytest

from batchjobs.errors import StoreError, UsageError
from batchjobs.settings import Settings
from batchjobs.store.s3.bucket import DEFAULT_REGION, Bucket, parse_url


@pytest.fixture(autouse=True)
def no_configuration_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def of(url: str = "s3://bucket/prefix", **settings: str) -> Bucket:
    return Bucket.of(Settings.load(store_url=url, **settings))


@pytest.mark.parametrize(
    ("url", "name", "prefix"),
    [
        ("s3://bucket", "bucket", ""),
        ("s3://bucket/", "bucket", ""),
        ("s3://my.bucket-1/a", "my.bucket-1", "a/"),
        ("s3://bucket/a/b.c/", "bucket", "a/b.c/"),
    ],
)
def test_url_names_bucket_and_prefix(url: str, name: str, prefix: str) -> None:
    assert parse_url(url) == (name, prefix)


@pytest.mark.parametrize(
    "url",
    [
        *("", "bucket", "s3://", "s3:///a", "s3://ab", "S3://bucket", "https://host/bucket"),
        *("s3://key:secret@bucket", "s3://bucket/a/../b", "s3://bucket/a//b", "s3://bucket/a?b=c"),
        *("s3://bucket/a b", "s3://bucket\n"),
    ],
)
def test_other_urls_are_refused_by_the_name_of_their_variable(url: str) -> None:
    with pytest.raises(UsageError, match="BATCHJOBS_STORE_URL is not usable: it must be s3://buck"):
        parse_url(url)


def test_refusal_repeats_no_secret() -> None:
    with pytest.raises(UsageError) as refused:
        of("s3://key:secret@bucket")
    assert "secret" not in refused.value.message
    with pytest.raises(UsageError, match="BATCHJOBS_S3_ENDPOINT_URL") as refused:
        of(s3_endpoint_url="http://key:secret@host")
    assert "secret" not in refused.value.message


@pytest.mark.parametrize("url", ["host:9000", "ftp://host", "http://", ""])
def test_endpoint_that_is_no_http_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="BATCHJOBS_S3_ENDPOINT_URL is not usable"):
        of(s3_endpoint_url=url)


def test_objects_have_addresses_below_the_prefix() -> None:
    bucket = of("s3://bucket/prefix")
    assert bucket.address("files/a") == {"Bucket": "bucket", "Key": "prefix/files/a"}
    assert bucket.locate("files/a") == "s3://bucket/prefix/files/a"


def test_own_server_is_addressed_by_path_and_needs_no_region() -> None:
    config = of(s3_endpoint_url="http://127.0.0.1:9000").client.meta.config
    assert config.s3["addressing_style"] == "path"
    assert config.region_name == DEFAULT_REGION


def test_region_of_the_settings_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    assert of().client.meta.region_name == "eu-central-1"
    assert of(s3_region="eu-west-3").client.meta.region_name == "eu-west-3"


def test_configuration_of_boto3_that_is_wrong_is_a_store_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "absent")
    with pytest.raises(StoreError, match=r"The S3 client cannot be set up: .*absent"):
        of()


def test_client_signs_with_version_4_and_checks_as_told() -> None:
    config = of(s3_checksums="when_supported").client.meta.config
    assert config.signature_version == "s3v4"
    assert config.request_checksum_calculation == "when_supported"
    assert of().client.meta.config.request_checksum_calculation == "when_required"
