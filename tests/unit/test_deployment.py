from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import text

from batchjobs.deployment import Deployment
from batchjobs.errors import UsageError
from batchjobs.settings import Settings


def test_open_makes_a_private_home_with_database_and_store(tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    with Deployment.open(Settings.load(home=home)) as deployment:
        deployment.store.put("a", b"")
        with deployment.database.read() as session:
            assert session.scalar(text("SELECT count(*) FROM jobs")) == 0
    assert home.stat().st_mode & 0o077 == 0
    assert (home / "batchjobs.sqlite3").is_file()


def test_what_is_written_is_there_when_opened_again(tmp_path: Path) -> None:
    settings = Settings.load(home=tmp_path)
    with Deployment.open(settings) as deployment:
        deployment.store.put("a", b"data")
    with Deployment.open(settings) as deployment, deployment.store.open("a") as stream:
        assert stream.read() == b"data"


def test_home_that_cannot_be_written_is_a_usage_error_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError) as refused:
        Deployment.open(Settings.load(home=tmp_path / "file" / "home"))
    assert refused.value.message == (
        f"The data directory {tmp_path}/file/home cannot be used (Not a directory);"
        " set BATCHJOBS_HOME to a folder that you can write to."
    )


def test_opening_leaves_torch_unloaded(tmp_path: Path) -> None:
    script = f"""
import sys
from batchjobs.deployment import Deployment
from batchjobs.settings import Settings
Deployment.open(Settings.load(home={str(tmp_path)!r})).close()
assert not {{"torch", "transformers"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
