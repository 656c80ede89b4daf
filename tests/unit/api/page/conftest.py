from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from batchjobs.api.app import create_app
from batchjobs.deployment import Deployment
from tests.support.engines import add_models
from tests.support.jobs import MODEL, open_deployment
from tests.support.page import FROM_THE_PAGE


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with open_deployment(tmp_path, poll_seconds=0.01) as opened:
        add_models(opened, MODEL)
        yield opened


@pytest.fixture
def client(deployment: Deployment) -> TestClient:
    """A browser on the page, which follows no redirect; without a caretaker."""
    app = create_app(deployment)
    return TestClient(
        app, raise_server_exceptions=False, follow_redirects=False, headers=FROM_THE_PAGE
    )


@pytest.fixture
def closed(deployment: Deployment) -> TestClient:
    """The same where keys are required."""
    app = create_app(deployment, require_keys=True)
    return TestClient(
        app, raise_server_exceptions=False, follow_redirects=False, headers=FROM_THE_PAGE
    )
