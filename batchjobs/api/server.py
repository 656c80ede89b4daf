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
from batchjobs.deployment import Deployment
from batchjobs.errors import UsageError

_BACKLOG = 2048


def serve(
    deployment: Deployment,
    *,
    host: str,
    port: int,
    insecure_open: bool = False,
    on_listening: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve until SIGINT or SIGTERM; port 0 is any free one. Calls `on_listening` with the URL.

    Raises:
        UsageError: others than this host could reach it, and that was not asked for.
        OSError: the address cannot be listened on.
    """
    if not (insecure_open or is_loopback(host)):
        raise UsageError(
            f"There are no API keys yet (they come with a later version), so whoever reaches {host}"
            " could run jobs and read everyone's results. Listen on 127.0.0.1, or say"
            " --insecure-open if only those can reach it who may."
        )
    app = create_app(deployment)
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
