"""Finds custom ids that a file uses twice, in memory that does not grow with the file."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator

from batchjobs.closing import Closing

_BATCH = 1000
# A private temporary database, on disk: SQLite deletes it when it is closed.
_TEMPORARY = ""

_REPEATED = """
    SELECT line, first FROM (
        SELECT line, MIN(line) OVER (PARTITION BY digest) AS first FROM ids
    ) WHERE line > first ORDER BY line
"""


class CustomIds(Closing):
    """The custom ids seen so far. Ids of 128-bit digests, so that a long one
    takes no more room than a short one."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(_TEMPORARY, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=OFF")
        self._connection.execute("CREATE TABLE ids (line INTEGER PRIMARY KEY, digest BLOB)")
        self._connection.execute("BEGIN")
        self._waiting: list[tuple[int, bytes]] = []

    def add(self, custom_id: str, line: int) -> None:
        digest = hashlib.blake2b(custom_id.encode(), digest_size=16).digest()
        self._waiting.append((line, digest))
        if len(self._waiting) == _BATCH:
            self._flush()

    def repeated(self) -> Iterator[tuple[int, int]]:
        """(line, first line with the same id) of every line but the first, in line order."""
        self._flush()
        yield from self._connection.execute(_REPEATED)

    def close(self) -> None:
        self._connection.close()

    def _flush(self) -> None:
        self._connection.executemany("INSERT INTO ids VALUES (?, ?)", self._waiting)
        self._waiting.clear()
