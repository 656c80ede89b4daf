"""What every command and worker works on: settings, facts, bytes and time, opened together."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from batchjobs.bell import Bell, NoBell
from batchjobs.clock import Clock, DatabaseClock
from batchjobs.closing import Closing
from batchjobs.config_file import ConfigFile
from batchjobs.db import Database
from batchjobs.errors import UsageError
from batchjobs.settings import Settings
from batchjobs.store.base import ObjectStore
from batchjobs.store.directory import DirectoryStore

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment(Closing):
    settings: Settings
    database: Database
    store: ObjectStore
    clock: Clock
    bell: Bell

    @classmethod
    def open(cls, settings: Settings) -> Self:
        """Creates what is missing and brings the database to the newest schema.

        Raises:
            UsageError: the data directory or a setting cannot be used.
            DatabaseError, StoreError: they fail for another reason.
        """
        if warning := ConfigFile.find().exposed(settings.secrets()):
            logger.warning("%s", warning)
        make_home(settings.home)
        database = Database.open(settings.database_address)
        try:
            database.upgrade()
            store = _open_store(settings)
        except BaseException:
            database.close()
            raise
        return cls(
            settings=settings,
            database=database,
            store=store,
            clock=DatabaseClock(),
            bell=_open_bell(settings),
        )

    def close(self) -> None:
        self.database.close()


def _open_store(settings: Settings) -> ObjectStore:
    if settings.store_url is None:
        return DirectoryStore(settings.store_dir)
    from batchjobs.store.s3.store import S3Store  # boto3 takes a moment to load

    return S3Store.connect(settings)


def make_home(home: Path) -> None:
    """Private to its owner. Raises UsageError if it cannot be written to."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        (home / ".writable").touch()
        (home / ".writable").unlink(missing_ok=True)
    except OSError as failed:
        raise UsageError(
            f"The data directory {home} cannot be used ({failed.strerror});"
            " set BATCHJOBS_HOME to a folder that you can write to."
        ) from failed


def _open_bell(settings: Settings) -> Bell:
    if settings.broker_url is None:
        return NoBell()
    from batchjobs.celery_bell import CeleryBell  # Celery takes a moment to load

    return CeleryBell(settings.broker_url.get_secret_value())
