from __future__ import annotations

import socket

import pytest

from batchjobs.api.server import is_loopback, needs_keys, serve
from batchjobs.deployment import Deployment


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_keys_are_needed_on_loopback_when_asked_for(host: str) -> None:
    assert is_loopback(host)
    assert not needs_keys(host)
    assert needs_keys(host, require_keys=True)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org", ""])
def test_keys_are_needed_where_others_reach_it_unless_told_otherwise(host: str) -> None:
    assert not is_loopback(host)
    assert needs_keys(host)
    assert not needs_keys(host, insecure_open=True)


def test_port_that_is_taken_is_named(deployment: Deployment) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use") as failed:
            serve(deployment, host="127.0.0.1", port=port, require_keys=False)
    assert failed.value.filename == f"127.0.0.1:{port}"
