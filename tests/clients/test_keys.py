"""API keys as the unmodified `openai` package meets them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from openai import OpenAI

from batchjobs.deployment import Deployment
from batchjobs.settings import Settings
from batchjobs.worker.runner import run_jobs
from batchjobs.worker.stop import StopSignal
from tests.support.api import Server, lines, running_server
from tests.support.engines import FakeEngines, add_models
from tests.support.jobs import ENDPOINT, MODEL

pytestmark = pytest.mark.clients

LARGE = b"{}\n" * 10_000_000


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def deployment(home: Path) -> Iterator[Deployment]:
    with Deployment.open(Settings.load(home=home)) as opened:
        add_models(opened, MODEL)
        yield opened


def keys(home: Path, *arguments: str) -> str:
    """What `batchjobs keys …` prints."""
    return subprocess.run(
        [sys.executable, "-m", "batchjobs", "keys", *arguments],
        env={"BATCHJOBS_HOME": str(home), "PYTHONPATH": ":".join(sys.path)},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    ).stdout.strip()


@pytest.fixture(scope="module")
def secrets(home: Path, deployment: Deployment) -> dict[str, str]:
    """Of a key of each of two tenants."""
    return {name: keys(home, "create", name, "--tenant", name) for name in ("mine", "other")}


@pytest.fixture(scope="module")
def server(home: Path, secrets: dict[str, str]) -> Iterator[Server]:
    with running_server(home, ["--require-keys"], poll_seconds=0.1) as running:
        yield running


def client_of(server: Server, secret: str) -> OpenAI:
    return OpenAI(base_url=f"{server.url}/v1", api_key=secret, max_retries=0)


def test_a_batch_is_its_tenants_alone(
    server: Server, secrets: dict[str, str], deployment: Deployment
) -> None:
    with client_of(server, secrets["mine"]) as mine, client_of(server, secrets["other"]) as other:
        file = mine.files.create(file=lines(3), purpose="batch")
        batch = mine.batches.create(
            input_file_id=file.id, endpoint=ENDPOINT, completion_window="24h"
        )
        while batch.status != "completed":
            run_jobs(
                deployment,
                engines=FakeEngines(),
                stop=StopSignal(grace_seconds=60, forced_exit=9),
            )
            batch = mine.batches.retrieve(batch.id, extra_query={"wait": 5})
        assert batch.output_file_id is not None
        assert len(mine.files.content(batch.output_file_id).text.splitlines()) == 3
        assert [one.id for one in mine.batches.list()] == [batch.id]
        assert list(other.batches.list()) == list(other.files.list()) == []
        with pytest.raises(openai.NotFoundError):
            other.batches.retrieve(batch.id)
        with pytest.raises(openai.NotFoundError):
            other.files.content(batch.output_file_id)


@pytest.mark.parametrize("secret", ["sk-proj-of-another-service-1234", f"bj-{'x' * 43}"])
def test_wrong_key_is_an_authentication_error(server: Server, secret: str) -> None:
    with client_of(server, secret) as client:
        with pytest.raises(openai.AuthenticationError, match="Incorrect API key") as refused:
            client.batches.list()
        assert (refused.value.status_code, refused.value.code) == (401, "invalid_api_key")
        assert secret not in str(refused.value)


def test_large_upload_with_a_wrong_key_is_an_authentication_error(
    server: Server, home: Path
) -> None:
    before = list((home / "store").rglob("*"))
    with (
        client_of(server, "none") as client,
        pytest.raises(openai.AuthenticationError, match="Incorrect API key"),
    ):
        client.files.create(file=LARGE, purpose="batch")
    assert list((home / "store").rglob("*")) == before


def test_revoked_key_is_an_authentication_error(server: Server, home: Path) -> None:
    with client_of(server, keys(home, "create", "lost")) as client:
        assert client.models.list().data
        listed = keys(home, "list")
        [key_id] = [row.split()[0] for row in listed.splitlines() if " lost " in row]
        keys(home, "revoke", key_id)
        with pytest.raises(openai.AuthenticationError, match="Incorrect API key"):
            client.models.list()
