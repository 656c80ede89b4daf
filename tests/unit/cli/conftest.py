from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.served import WAYS, reaching


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data directory that commands of this test work on."""
    folder = tmp_path / "home"
    monkeypatch.setenv("BATCHJOBS_HOME", str(folder))
    return folder


@pytest.fixture(params=WAYS)
def data(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """The same, also where commands reach it through a server only."""
    with reaching(request.param, tmp_path, monkeypatch) as folder:
        yield folder
