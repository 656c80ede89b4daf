from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.client_service import running_service
from tests.support.jobs import MODEL


@pytest.fixture(scope="session")
def service_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server and one worker for all clients: they meet each other's files and jobs."""
    with running_service(tmp_path_factory.mktemp("service"), MODEL) as url:
        yield url
