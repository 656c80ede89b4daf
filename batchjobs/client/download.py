"""A file of a server as a stream: what broke on the way goes on where it was."""

from __future__ import annotations

import io
import time
from typing import TYPE_CHECKING

import httpx2

from batchjobs.client import connection
from batchjobs.errors import RemoteError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from batchjobs.client.connection import Connection

BUFFER_BYTES = 1 << 20


def open_download(server: Connection, path: str) -> io.BufferedReader:
    """The bytes at `path`; reading raises RemoteError if they cannot all be had."""
    return io.BufferedReader(_Download(server, path), BUFFER_BYTES)


class _Download(io.RawIOBase):
    def __init__(self, server: Connection, path: str) -> None:
        self._server = server
        self._path = path
        self._position = 0
        self._rest = memoryview(b"")
        self._answer = self._ask()
        self._chunks = self._answer.iter_raw()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        if not self._rest:
            self._rest = memoryview(self._next_chunk())
        target = memoryview(buffer).cast("B")
        size = min(len(target), len(self._rest))
        target[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    def close(self) -> None:
        if not self.closed:
            self._answer.close()
        super().close()

    def _next_chunk(self) -> bytes:
        """b"" at the end."""
        for pause in (*connection.REPEAT_SECONDS, None):
            try:
                chunk = next(self._chunks, b"")
            except httpx2.TransportError as failed:
                if pause is None:
                    raise self._server.broken(failed) from failed
            else:
                self._position += len(chunk)
                return chunk
            time.sleep(pause)
            self._go_on()
        raise AssertionError("unreachable")

    def _go_on(self) -> None:
        self._answer.close()
        self._answer = self._ask()
        self._chunks = self._answer.iter_raw()

    def _ask(self) -> httpx2.Response:
        headers = {"accept-encoding": "identity"}
        if self._position:
            headers["range"] = f"bytes={self._position}-"
        answer = self._server.get(self._path, headers=headers, stream=True)
        if self._position and answer.status_code != httpx2.codes.PARTIAL_CONTENT:
            answer.close()
            raise RemoteError(
                f"The connection to {self._server.url} broke, and it does not send the rest of a"
                " file: try again."
            )
        return answer
