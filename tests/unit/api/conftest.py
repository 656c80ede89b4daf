from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from batchjobs.api.app import create_app
from batchjobs.deployment import Deployment
from tests.support.engines import add_models
from tests.support.jobs import MODEL, open_deployment


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with open_deployment(tmp_path, poll_seconds=0.01, max_input_bytes=100_000) as opened:
        add_models(opened, MODEL)
        yield opened


@pytest.fixture
def client(deployment: Deployment) -> TestClient:
    """Without the application's lifespan, and so without a caretaker: tests call `tend`."""
    return TestClient(create_app(deployment), raise_server_exceptions=False)
