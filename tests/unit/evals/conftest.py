from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from batchjobs.evals.workplace import Workplace
from tests.support.engines import add_models
from tests.support.evals import MODEL, place_of
from tests.support.jobs import open_deployment


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workplace]:
    with open_deployment(tmp_path / "home") as deployment:
        add_models(deployment, MODEL, "judge")
        yield place_of(deployment)
