"""The embedded database with all its tables, migrated once: that takes longer than most tests."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from batchjobs.db import Database
from batchjobs.deployment import make_home
from batchjobs.settings import Settings


def lay_tables(settings: Settings) -> None:
    """What the first command on a data directory does; nothing for a database server."""
    if settings.database_url is not None:
        return
    make_home(settings.home)
    path = Path(settings.database_address.removeprefix("sqlite:///"))
    if not path.exists():
        path.write_bytes(_migrated())


@cache
def _migrated() -> bytes:
    """The file as its last connection leaves it."""
    with tempfile.TemporaryDirectory(prefix="tables-") as folder:
        path = Path(folder) / "tables.sqlite3"
        database = Database.open(f"sqlite:///{path}")
        database.upgrade()
        database.close()
        return path.read_bytes()
