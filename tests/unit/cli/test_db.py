from __future__ import annotations

from pathlib import Path

import pytest

from batchjobs.cli.exits import Exit
from batchjobs.db import REVISION
from tests.support.cli import run


def test_upgrade_of_the_embedded_database_says_what_was_done(home: Path) -> None:
    place = f"The database {home / 'batchjobs.sqlite3'} is"
    assert run("db", "upgrade").stdout == f"{place} now at revision {REVISION}.\n"
    assert run("db", "upgrade").stdout == f"{place} already at revision {REVISION}.\n"


def test_upgrade_of_a_server_needs_no_home_and_shows_no_password(
    home: Path, empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHJOBS_DATABASE_URL", empty_postgres_url)
    home.touch()  # a file can be no home
    result = run("db", "upgrade")
    assert result.exit_code == Exit.DONE
    assert result.stdout.startswith("The database postgresql://")
    assert result.stdout.endswith(f"is now at revision {REVISION}.\n")
    assert "tell-nobody" not in result.output


def test_upgrade_with_a_url_of_no_use_ends_as_wrong_usage(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHJOBS_DATABASE_URL", "mysql://host/name")
    result = run("db", "upgrade")
    assert result.exit_code == Exit.USAGE
    assert "BATCHJOBS_DATABASE_URL is not usable" in result.stderr
