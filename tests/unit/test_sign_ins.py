from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import select

from batchjobs import api_keys, sign_ins
from batchjobs.deployment import Deployment
from batchjobs.models import ApiKey, SignIn
from tests.support.jobs import clock_of, open_deployment


@pytest.fixture
def deployment(tmp_path: Path, database_url: str | None) -> Iterator[Deployment]:
    with open_deployment(tmp_path, database_url=database_url) as opened:
        yield opened


@pytest.fixture
def key(deployment: Deployment) -> ApiKey:
    with deployment.database.write() as session:
        return api_keys.create(session, deployment.clock, name="me", tenant="research").key


def sign_in(deployment: Deployment, key: ApiKey) -> str:
    with deployment.database.write() as session:
        return sign_ins.create(session, deployment.clock, key)


def tenant(deployment: Deployment, secret: str) -> str | None:
    with deployment.database.read() as session:
        found = sign_ins.find_key(session, deployment.clock, secret)
        return None if found is None else found.tenant


def test_secret_leads_to_its_key_alone(deployment: Deployment, key: ApiKey) -> None:
    secret = sign_in(deployment, key)
    assert sign_in(deployment, key) != secret
    assert tenant(deployment, secret) == "research"
    for wrong in (
        "",
        secret[:-1],
        secret.upper(),
        "\0",
        "\ud800".encode(errors="replace").decode(),
    ):
        assert tenant(deployment, wrong) is None


def test_secret_is_not_kept(deployment: Deployment, key: ApiKey) -> None:
    secret = sign_in(deployment, key)
    with deployment.database.read() as session:
        assert secret not in str(session.execute(select(SignIn.__table__)).all())


def test_secret_ends_with_its_time_its_key_or_when_asked(
    deployment: Deployment, key: ApiKey
) -> None:
    first, second = sign_in(deployment, key), sign_in(deployment, key)
    with deployment.database.write() as session:
        sign_ins.end(session, first)
        sign_ins.end(session, "unknown")
    assert (tenant(deployment, first), tenant(deployment, second)) == (None, "research")
    with deployment.database.write() as session:
        api_keys.revoke(session, deployment.clock, key.id)
    assert tenant(deployment, second) is None


def test_those_whose_time_is_up_go(deployment: Deployment, key: ApiKey) -> None:
    old = sign_in(deployment, key)
    clock_of(deployment).advance(sign_ins.LIFETIME - timedelta(seconds=1))
    assert tenant(deployment, old) == "research"
    clock_of(deployment).advance(timedelta(seconds=1))
    assert tenant(deployment, old) is None
    sign_in(deployment, key)
    with deployment.database.read() as session:
        assert len(session.scalars(select(SignIn.digest)).all()) == 1
