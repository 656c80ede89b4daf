from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from batchjobs.deployment import Deployment
from batchjobs.queue import claims
from batchjobs.worker.presence import is_alive, present
from batchjobs.worker.tending import tend
from tests.support.jobs import (
    LEASE_SECONDS,
    clock_of,
    must_claim,
    open_deployment,
    request_line,
    start_job,
)


def owners(deployment: Deployment) -> set[str]:
    with deployment.database.read() as session:
        return claims.owners(session)


def test_worker_is_alive_until_its_context_ends(tmp_path: Path) -> None:
    with present(tmp_path, "worker-1"):
        assert is_alive(tmp_path, "worker-1")
    assert not is_alive(tmp_path, "worker-1")
    assert list(tmp_path.iterdir()) == []


def test_worker_whose_process_has_died_is_not_alive(tmp_path: Path) -> None:
    (tmp_path / "worker-1.lock").touch()
    assert not is_alive(tmp_path, "worker-1")


def test_embedded_deployment_takes_over_from_a_dead_worker_at_once(tmp_path: Path) -> None:
    with open_deployment(tmp_path) as deployment:
        start_job(deployment, [request_line("a")])
        must_claim(deployment, owner="dead")
        tend(deployment)
        assert owners(deployment) == set()


def test_live_worker_of_this_host_keeps_its_shards(tmp_path: Path) -> None:
    with (
        open_deployment(tmp_path) as deployment,
        present(deployment.settings.workers_dir, "worker-1"),
    ):
        start_job(deployment, [request_line("a")])
        must_claim(deployment, owner="worker-1")
        tend(deployment)
        assert owners(deployment) == {"worker-1"}


def test_on_a_server_only_the_lease_counts_as_the_worker_may_be_elsewhere(
    tmp_path: Path, postgres_url: str
) -> None:
    with open_deployment(tmp_path, database_url=postgres_url) as deployment:
        start_job(deployment, [request_line("a")])
        must_claim(deployment, owner="of-another-host")
        tend(deployment)
        assert owners(deployment) == {"of-another-host"}
        clock_of(deployment).advance(timedelta(seconds=LEASE_SECONDS + 1))
        tend(deployment)
        assert owners(deployment) == set()
