from __future__ import annotations

import socket

import pytest

from batchjobs.api.server import is_loopback, serve
from batchjobs.deployment import Deployment
from batchjobs.errors import UsageError


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_loopback_addresses_are_known(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org", ""])
def test_address_that_others_reach_is_refused_without_keys(
    deployment: Deployment, host: str
) -> None:
    assert not is_loopback(host)
    with pytest.raises(UsageError, match="--insecure-open"):
        serve(deployment, host=host, port=0)


def test_port_that_is_taken_is_named(deployment: Deployment) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use") as failed:
            serve(deployment, host="127.0.0.1", port=port)
    assert failed.value.filename == f"127.0.0.1:{port}"
