from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from batchjobs.deployment import Deployment
from tests.support.jobs import open_deployment


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with open_deployment(tmp_path) as opened:
        yield opened
