from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data directory that commands of this test work on."""
    folder = tmp_path / "home"
    monkeypatch.setenv("BATCHJOBS_HOME", str(folder))
    return folder
