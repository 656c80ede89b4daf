from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from batchjobs import api_keys
from batchjobs.api_keys import NewKey
from batchjobs.deployment import Deployment
from batchjobs.errors import NotFoundError, UsageError
from batchjobs.models import ApiKey
from tests.support.jobs import START, clock_of, open_deployment


@pytest.fixture
def deployment(tmp_path: Path, database_url: str | None) -> Iterator[Deployment]:
    with open_deployment(tmp_path, database_url=database_url) as opened:
        yield opened


def create(deployment: Deployment, name: str = "laptop", **options: str) -> NewKey:
    with deployment.database.write() as session:
        return api_keys.create(session, deployment.clock, name=name, **options)


def find(deployment: Deployment, secret: str) -> ApiKey | None:
    with deployment.database.read() as session:
        return api_keys.find(session, secret)


def revoke(deployment: Deployment, key_id: str) -> ApiKey:
    with deployment.database.write() as session:
        return api_keys.revoke(session, deployment.clock, key_id)


def test_new_key_is_found_by_its_secret_alone(deployment: Deployment) -> None:
    made = create(deployment, tenant="research")
    create(deployment, tenant="other")
    found = find(deployment, made.secret)
    assert found is not None
    assert (found.id, found.name, found.tenant) == (made.key.id, "laptop", "research")
    assert (found.created_at, found.revoked_at, found.last_used_at) == (START, None, None)
    for wrong in ("", made.secret[:-1], f"{made.secret}x", made.key.id, made.key.digest):
        assert find(deployment, wrong) is None


def test_secrets_are_long_and_differ(deployment: Deployment) -> None:
    secrets = {create(deployment).secret for _ in range(5)}
    assert len(secrets) == 5
    assert {(secret[:3], len(secret)) for secret in secrets} == {("bj-", 46)}


def test_key_keeps_only_a_hint_of_its_secret(deployment: Deployment) -> None:
    made = create(deployment)
    assert made.key.hint == f"{made.secret[:5]}***{made.secret[-4:]}"
    assert made.secret not in repr(made)
    assert made.secret not in repr(vars(made.key))


def test_revoked_key_is_found_no_more_and_stays_listed(deployment: Deployment) -> None:
    made, other = create(deployment), create(deployment, "server")
    clock_of(deployment).advance(timedelta(days=1))
    assert revoke(deployment, made.key.id).revoked_at == START + timedelta(days=1)
    clock_of(deployment).advance(timedelta(days=1))
    assert revoke(deployment, made.key.id).revoked_at == START + timedelta(days=1)
    assert find(deployment, made.secret) is None
    assert find(deployment, other.secret) is not None
    with deployment.database.read() as session:
        assert {key.id for key in api_keys.keys(session)} == {made.key.id, other.key.id}


def test_keys_exist_until_the_last_is_revoked(deployment: Deployment) -> None:
    def exist() -> bool:
        with deployment.database.read() as session:
            return api_keys.exist(session)

    assert not exist()
    made = [create(deployment).key.id for _ in range(2)]
    revoke(deployment, made[0])
    assert exist()
    revoke(deployment, made[1])
    assert not exist()


@pytest.mark.parametrize("key_id", ["key_0", "", "key_\0"])
def test_unknown_key_cannot_be_revoked(deployment: Deployment, key_id: str) -> None:
    with pytest.raises(NotFoundError, match="No API key has the id"):
        revoke(deployment, key_id)


@pytest.mark.parametrize("tenant", ["a", "Team-1", "org.unit_2", "0" * 64])
def test_tenant_may_have_a_short_plain_name(deployment: Deployment, tenant: str) -> None:
    assert create(deployment, tenant=tenant).key.tenant == tenant


@pytest.mark.parametrize("tenant", ["", "a b", "-a", ".", "a\n", "é", "a/b", "0" * 65, "a\0"])
def test_tenant_of_another_name_is_refused(deployment: Deployment, tenant: str) -> None:
    with pytest.raises(UsageError, match="A tenant's name has 1 to 64 letters"):
        create(deployment, tenant=tenant)


@pytest.mark.parametrize("name", ["", "a\nb", "\x1b[2J", "n" * 65])
def test_name_that_does_not_print_is_refused(deployment: Deployment, name: str) -> None:
    with pytest.raises(UsageError, match="A key's name has 1 to 64 printable"):
        create(deployment, name)
