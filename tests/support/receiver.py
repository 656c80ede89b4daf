"""A real HTTP server that takes webhooks and answers as it is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from openai import OpenAI


@dataclass
class Receiver:
    """Answers with the next of `statuses`, and then with 200."""

    url: str
    statuses: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    """Of its answers."""
    received: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    def unwrapped(self, secret: str) -> list[object]:
        """What OpenAI's own client makes of all that came; raises if a signature is wrong."""
        client = OpenAI(api_key="none", webhook_secret=secret)
        return [client.webhooks.unwrap(body, headers) for headers, body in self.received]

    def ids(self) -> list[str]:
        return [headers["webhook-id"] for headers, _ in self.received]


@contextmanager
def receiving() -> Iterator[Receiver]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    host, port = server.server_address[:2]
    receiver = Receiver(f"http://{host!s}:{port}/hooks")
    server.receiver = receiver  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        receiver: Receiver = self.server.receiver  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers["content-length"]))
        receiver.received.append(({k.lower(): v for k, v in self.headers.items()}, body))
        self.send_response(receiver.statuses.pop(0) if receiver.statuses else 200)
        for name, value in receiver.headers.items():
            self.send_header(name, value)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        pass
