"""The application behind a listening socket, until a signal."""

from __future__ import annotations

import ipaddress
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn

from batchjobs.api.app import create_app
from batchjobs.api.names import names_of
from batchjobs.deployment import Deployment

_BACKLOG = 2048


def serve(
    deployment: Deployment,
    *,
    host: str,
    port: int,
    require_keys: bool,
    on_listening: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve until SIGINT or SIGTERM; port 0 is any free one. Calls `on_listening` with the URL.

    Raises OSError if the address cannot be listened on.
    """
    names = None if require_keys else names_of(host, deployment.settings)
    app = create_app(deployment, require_keys=require_keys, names=names)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=max(1, int(deployment.settings.stop_grace_seconds)),
    )
    with _listen(host, port) as listener:
        on_listening(_url(listener))
        _Server(config, app.state.closing).run(sockets=[listener])


def needs_keys(host: str, *, require_keys: bool = False, insecure_open: bool = False) -> bool:
    """Whether requests to `host` must have an API key: as asked, or else where others reach it."""
    return require_keys or not (insecure_open or is_loopback(host))


def is_loopback(host: str) -> bool:
    """Whether only this host reaches what listens on `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Server(uvicorn.Server):
    """Ends well after a signal: uvicorn itself would then raise it once more."""

    def __init__(self, config: uvicorn.Config, closing: threading.Event) -> None:
        super().__init__(config)
        self._closing = closing

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._closing.set()
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        previous = {
            number: signal.signal(number, self.handle_exit)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def _listen(host: str, port: int) -> socket.socket:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    family, kind, protocol, _, address = found[0]
    # Not `create_server`: asyncio sends without delay only on sockets that name their protocol.
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as failed:
        listener.close()
        failed.filename = f"{host}:{port}"
        raise
    return listener


def _url(listener: socket.socket) -> str:
    host, port, *_ = listener.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
