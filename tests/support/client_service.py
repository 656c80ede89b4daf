"""A server and a worker, each a process of its own, for other people's clients to talk to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from batchjobs.deployment import Deployment
from batchjobs.settings import Settings
from tests.support.api import STOP_SECONDS, running_server
from tests.support.engines import add_models
from tests.support.processes import environment_of, python
from tests.support.standing_worker import READY

POLL_SECONDS = 0.1


@contextmanager
def running_service(home: Path, *models: str) -> Iterator[str]:
    """The API's URL with `/v1`, as clients want it."""
    with Deployment.open(Settings.load(home=home)) as deployment:
        add_models(deployment, *models)
    with running_server(home, poll_seconds=POLL_SECONDS) as server, _standing_worker(home):
        yield f"{server.url}/v1"


@contextmanager
def _standing_worker(home: Path) -> Iterator[None]:
    environment = environment_of(home, {"poll_seconds": POLL_SECONDS})
    with python("-m", "tests.support.standing_worker", environment=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == READY, process.communicate()[1]
        yield
        process.terminate()
        _, complaints = process.communicate(timeout=STOP_SECONDS)
        assert (process.returncode, complaints) == (0, "")
