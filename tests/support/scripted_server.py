"""A server that answers as a test tells it to, also with half an answer or none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Reply = bytes | None
"""The bytes of an answer, after which the connection is closed; None closes it at once."""


@dataclass(frozen=True, slots=True)
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@contextmanager
def scripted(answer: Callable[[Asked], Reply]) -> Iterator[str]:
    """The URL of a server that gives each request what `answer` returns for it."""

    class Handler(BaseHTTPRequestHandler):
        def handle_one_request(self) -> None:
            self.raw_requestline = self.rfile.readline(65537)
            self.close_connection = True
            if not self.raw_requestline or not self.parse_request():
                return
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length", 0)))
            reply = answer(Asked(self.command, self.path, headers, body))
            if reply is not None:
                with suppress(ConnectionError):  # one who has asked may be gone by now
                    self.wfile.write(reply)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def http(status: int, body: bytes = b"", *, length: int | None = None, **headers: str) -> bytes:
    """An answer; with a `length` beyond the body's, one that breaks off."""
    lines = [
        f"HTTP/1.1 {status} So",
        f"content-length: {len(body) if length is None else length}",
        "connection: close",
        *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body
