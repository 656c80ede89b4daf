from __future__ import annotations

from pathlib import Path

import pytest

from batchjobs import api_keys
from batchjobs.cli.exits import Exit
from batchjobs.deployment import Deployment
from batchjobs.settings import Settings
from tests.support.cli import run, run_json


def tenant_of(home: Path, secret: str) -> str | None:
    with (
        Deployment.open(Settings.load(home=home)) as deployment,
        deployment.database.read() as session,
    ):
        key = api_keys.find(session, secret)
    return None if key is None else key.tenant


def test_created_key_is_alone_on_standard_output(home: Path) -> None:
    made = run("keys", "create", "laptop", "--tenant", "research")
    [secret] = made.stdout.splitlines()
    assert tenant_of(home, secret) == "research"
    assert secret not in made.stderr
    assert "of the tenant research" in made.stderr
    assert tenant_of(home, run("keys", "create", "laptop").stdout.strip()) == "default"


def test_listed_keys_show_whose_they_are_and_no_secret(home: Path) -> None:
    secrets = [run("keys", "create", name).stdout.strip() for name in ("laptop", "server")]
    rows = run_json("keys", "list")
    assert [(row["name"], row["tenant"]) for row in rows] == [
        ("laptop", "default"),
        ("server", "default"),
    ]
    assert set(rows[0]) == {
        "id",
        "name",
        "tenant",
        "hint",
        "created_at",
        "last_used_at",
        "revoked_at",
    }
    assert isinstance(rows[0]["created_at"], int)
    table = run("keys", "list").stdout
    for row, secret in zip(rows, secrets, strict=True):
        assert row["id"] in table
        assert row["hint"] in table
        assert secret not in table


def test_list_without_keys_says_how_to_create_one(home: Path) -> None:
    assert "batchjobs keys create NAME" in run("keys", "list").stdout
    assert run_json("keys", "list") == []


def test_revoked_key_opens_nothing_and_says_since_when(home: Path) -> None:
    secret = run("keys", "create", "laptop").stdout.strip()
    [row] = run_json("keys", "list")
    first = run("keys", "revoke", row["id"])
    assert first.stdout.startswith(f"{row['id']} is revoked since ")
    assert run("keys", "revoke", row["id"]).stdout == first.stdout
    assert tenant_of(home, secret) is None
    assert run_json("keys", "list")[0]["revoked_at"] is not None


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("create", "laptop", "--tenant", "a b"), Exit.USAGE, "A tenant's name has"),
        (("create", ""), Exit.USAGE, "A key's name has"),
        (("revoke", "key_none"), Exit.ERROR, "No API key has the id 'key_none'"),
    ],
)
def test_mistake_is_one_sentence(
    home: Path, arguments: tuple[str, ...], code: Exit, said: str
) -> None:
    result = run("keys", *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.startswith(f"Error: {said}")
    assert result.stderr.count("\n") == 1
