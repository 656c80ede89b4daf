"""Ports for servers that must be told theirs before they listen."""

from __future__ import annotations

import os
import socket

FIRST = 10_000
STARTS = 10_000
STRIDE = 6_181
"""Processes that begin one after the other, as those of one test run do, begin far apart here."""
GRPC_OFFSET = 10_000
"""SeaweedFS opens each port also this much higher."""


def free_ports(count: int) -> list[int]:
    """Ports that are free, as are those GRPC_OFFSET higher, and stay so until a server has them:
    they lie below those that the kernel gives to anyone, and each process looks elsewhere."""
    found: list[int] = []
    for port in range(FIRST + os.getpid() * STRIDE % STARTS, FIRST + GRPC_OFFSET + STARTS):
        if _is_free(port) and _is_free(port + GRPC_OFFSET):
            found.append(port)
            if len(found) == count:
                return found
    raise RuntimeError("This machine has no free ports for the tests' servers.")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
