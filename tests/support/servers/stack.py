"""All servers of a deployment at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.servers.postgres import Databases, PostgresServer, postgres_server
from tests.support.servers.s3 import S3Server, seaweedfs
from tests.support.servers.valkey import Valkey


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """`settings` name the servers, as fields of `Settings`; credentials of S3 are in the
    environment."""

    postgres: PostgresServer
    valkey: Valkey
    s3: S3Server
    settings: dict[str, str]


@contextmanager
def service_stack(folder: Path) -> Iterator[Stack]:
    """A PostgreSQL, a Valkey and an S3 server of one's own, and a database without tables."""
    with ExitStack() as opened:
        postgres = opened.enter_context(postgres_server())
        database = opened.enter_context(Databases(postgres.url).new())
        s3 = opened.enter_context(seaweedfs()).server
        opened.enter_context(s3.credentials())
        valkey = Valkey(folder)
        valkey.start()
        opened.callback(valkey.kill)
        settings = {
            "database_url": database,
            "store_url": s3.url,
            "broker_url": valkey.url,
        }
        assert s3.endpoint_url is not None
        settings["s3_endpoint_url"] = s3.endpoint_url
        yield Stack(postgres=postgres, valkey=valkey, s3=s3, settings=settings)
