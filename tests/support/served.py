"""A deployment behind its API on a real socket, in this process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn

from batchjobs.api.app import create_app
from batchjobs.deployment import Deployment
from batchjobs.queue import workers
from batchjobs.queue.workers import Condition, Identity
from batchjobs.worker.presence import present
from tests.support.jobs import open_deployment

STOP_SECONDS = 60
WAYS = ("embedded", "server")
"""How a command reaches its data."""


@contextmanager
def serving(deployment: Deployment, *, require_keys: bool = False) -> Iterator[str]:
    """The URL of the API, its caretaker included, until the end of the context."""
    app = create_app(deployment, require_keys=require_keys)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            app.state.closing.set()
            server.should_exit = True
            thread.join(STOP_SECONDS)
            assert not thread.is_alive()


@contextmanager
def alive(deployment: Deployment, worker: str) -> Iterator[None]:
    """What a test does in a worker's name is not taken over by the server, which knows of it."""
    who = Identity(id=worker, host="here", pid=1, models=None, job_id=None)
    with present(deployment.settings.workers_dir, worker):
        with deployment.database.write() as session:
            workers.report(session, deployment.clock, who, Condition())
        yield


@contextmanager
def reaching(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Commands reach the data directory that is given, the one way or the other. Those that reach
    it through a server touch no data directory themselves."""
    home, untouched = tmp_path / "home", tmp_path / "untouched"
    if way == "embedded":
        monkeypatch.setenv("BATCHJOBS_HOME", str(home))
        yield home
        return
    monkeypatch.setenv("BATCHJOBS_HOME", str(untouched))
    with (
        open_deployment(home, poll_seconds=0.02) as deployment,
        alive(deployment, "worker-1"),
        serving(deployment) as url,
    ):
        monkeypatch.setenv("BATCHJOBS_URL", url)
        yield home
    assert not untouched.exists()
