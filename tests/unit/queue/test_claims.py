from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.dialects import postgresql

from batchjobs.deployment import Deployment
from batchjobs.errors import IntegrityError, LeaseLostError
from batchjobs.models import Shard
from batchjobs.queue import claims, jobs
from batchjobs.queue.claims import Claim
from batchjobs.states import ShardState
from tests.support.jobs import (
    ENDPOINT,
    LEASE_SECONDS,
    START,
    answer,
    claim,
    clock_of,
    complete,
    load_job,
    must_claim,
    open_deployment,
    request_line,
    start_job,
    write_part,
)

LEASE = timedelta(seconds=LEASE_SECONDS)


@pytest.fixture
def deployment(tmp_path: Path, database_url: str | None) -> Iterator[Deployment]:
    with open_deployment(tmp_path, database_url=database_url) as opened:
        yield opened


def lines(names: str, *, model: str = "tiny") -> list[dict[str, object]]:
    return [request_line(name, model=model) for name in names]


def load_shard(deployment: Deployment, held: Claim) -> Shard:
    with deployment.database.read() as session:
        return session.get_one(Shard, held.shard_id)


def heartbeat(deployment: Deployment, *held: Claim) -> list[Claim]:
    with deployment.database.write() as session:
        return claims.heartbeat(session, deployment.clock, held, LEASE_SECONDS)


def release(deployment: Deployment, held: Claim) -> bool:
    with deployment.database.write() as session:
        return claims.release(session, held)


def finish(deployment: Deployment, held: Claim) -> None:
    with deployment.database.write() as session:
        claims.finish(session, held)


def rescue(deployment: Deployment) -> int:
    with deployment.database.write() as session:
        return claims.rescue(session, deployment.clock)


def release_owner(deployment: Deployment, owner: str) -> int:
    with deployment.database.write() as session:
        return claims.release_owner(session, owner)


def next_model(deployment: Deployment, **wanted: Any) -> str | None:
    with deployment.database.read() as session:
        return claims.next_model(session, **wanted)


def claimed_numbers(deployment: Deployment, models: Collection[str] | None = None) -> list[int]:
    numbers = []
    while (held := claim(deployment, models=models)) is not None:
        numbers.append(held.number)
    return numbers


def test_claim_carries_all_a_worker_needs(deployment: Deployment) -> None:
    job_id = start_job(deployment, lines("abc"), model_override="big", seed=7)
    held = must_claim(deployment, owner="worker-9")
    job = load_job(deployment, job_id)
    assert held.job_id == job_id
    assert (held.number, held.first_line, held.line_count) == (0, 1, 2)
    assert (held.fence, held.attempt, held.owner) == (1, 1, "worker-9")
    assert (held.endpoint, held.model, held.models) == (ENDPOINT, "big", {"big": "big"})
    assert (held.model_override, held.seed) == ("big", 7)
    assert (held.created_at, held.expires_at) == (START, job.expires_at)
    assert held.input_key == f"files/{job.input_file_id}.jsonl"
    with deployment.store.open(held.input_key, start=held.byte_start, end=held.byte_end) as stream:
        assert len(stream.read().splitlines()) == 2


def test_claimed_shard_is_running_with_a_lease(deployment: Deployment) -> None:
    start_job(deployment, lines("ab"))
    held = must_claim(deployment)
    shard = load_shard(deployment, held)
    assert shard.state is ShardState.RUNNING
    assert (shard.owner, shard.lease_until) == ("worker-1", START + LEASE)


def test_shards_are_claimed_once_each_in_file_order(deployment: Deployment) -> None:
    start_job(deployment, lines("abcdefg"))
    assert claimed_numbers(deployment) == [0, 1, 2, 3]
    assert claim(deployment) is None


def test_job_that_expires_first_is_claimed_first(deployment: Deployment) -> None:
    relaxed = start_job(deployment, lines("ab"), completion_window="7d")
    first = start_job(deployment, lines("ab"), completion_window="24h")
    clock_of(deployment).advance(timedelta(seconds=1))
    second = start_job(deployment, lines("ab"), completion_window="24h")
    assert [must_claim(deployment).job_id for _ in range(3)] == [first, second, relaxed]


def test_claim_keeps_to_the_models_and_job_it_is_asked_for(deployment: Deployment) -> None:
    one = start_job(deployment, [*lines("ab", model="x"), *lines("cd", model="y")])
    two = start_job(deployment, lines("ab", model="y"))
    assert must_claim(deployment, models=["y"], job_id=one).model == "y"
    assert claim(deployment, models=["y"], job_id=one) is None
    assert claim(deployment, models=[]) is None
    assert must_claim(deployment, job_id=two).job_id == two
    assert must_claim(deployment).model == "x"


@pytest.mark.parametrize("end", ["cancel", "expire"])
def test_shards_of_an_ending_job_are_not_claimed(deployment: Deployment, end: str) -> None:
    job_id = start_job(deployment, lines("ab"))
    with deployment.database.write() as session:
        if end == "cancel":
            jobs.cancel(session, deployment.clock, job_id)
        else:
            clock_of(deployment).advance(timedelta(hours=24))
            jobs.expire_due(session, deployment.clock)
    assert claim(deployment) is None
    assert next_model(deployment) is None


def test_postgres_claim_skips_rows_that_others_hold() -> None:
    query = claims.claim_query(job_id=None, models=None)
    sql = str(query.compile(dialect=postgresql.dialect()))  # type: ignore[no-untyped-call]
    assert "FOR UPDATE OF shards SKIP LOCKED" in sql


def test_claimers_at_once_get_different_shards_without_waiting(
    tmp_path: Path, postgres_url: str
) -> None:
    impatient = f"{postgres_url}?options=-c%20lock_timeout%3D10ms"
    with open_deployment(tmp_path, database_url=impatient) as deployment:
        start_job(deployment, lines("abcdef"))
        asked = {"owner": "worker-1", "lease_seconds": LEASE_SECONDS}
        with (
            deployment.database.write() as one,
            deployment.database.write() as two,
        ):
            first = claims.claim_next(one, deployment.clock, **asked)
            second = claims.claim_next(two, deployment.clock, **asked)
            third = must_claim(deployment)
        assert first is not None
        assert second is not None
        assert [first.number, second.number, third.number] == [0, 1, 2]


def test_shard_whose_claim_is_undone_is_claimed_by_the_next(
    tmp_path: Path, postgres_url: str
) -> None:
    def claim_and_fail(deployment: Deployment) -> None:
        with deployment.database.write() as session:
            claims.claim_next(session, deployment.clock, owner="worker-1", lease_seconds=1)
            raise RuntimeError("died")

    with open_deployment(tmp_path, database_url=postgres_url) as deployment:
        start_job(deployment, lines("ab"))
        with pytest.raises(RuntimeError, match="died"):
            claim_and_fail(deployment)
        held = must_claim(deployment)
    assert (held.number, held.fence, held.attempt) == (0, 1, 1)


def test_heartbeat_renews_the_lease(deployment: Deployment) -> None:
    start_job(deployment, lines("ab"))
    held = must_claim(deployment)
    clock_of(deployment).advance(LEASE / 2)
    assert heartbeat(deployment, held) == []
    assert load_shard(deployment, held).lease_until == START + LEASE * 1.5
    clock_of(deployment).advance(LEASE * 0.9)
    assert rescue(deployment) == 0


def test_late_heartbeat_renews_what_nobody_took(deployment: Deployment) -> None:
    start_job(deployment, lines("ab"))
    held = must_claim(deployment)
    clock_of(deployment).advance(LEASE * 10)
    assert heartbeat(deployment, held) == []
    assert rescue(deployment) == 0


def test_heartbeat_tells_which_claims_are_lost(deployment: Deployment) -> None:
    start_job(deployment, lines("abcd"))
    lost = must_claim(deployment)
    clock_of(deployment).advance(LEASE)
    kept = must_claim(deployment)
    clock_of(deployment).advance(timedelta(seconds=1))
    assert rescue(deployment) == 1
    assert heartbeat(deployment, lost, kept) == [lost]


def test_rescue_waits_for_the_end_of_the_lease(deployment: Deployment) -> None:
    start_job(deployment, lines("ab"))
    must_claim(deployment)
    clock_of(deployment).advance(LEASE)
    assert rescue(deployment) == 0
    clock_of(deployment).advance(timedelta(microseconds=1))
    assert rescue(deployment) == 1
    assert rescue(deployment) == 0


def test_rescued_shard_is_claimed_again_as_another_attempt(deployment: Deployment) -> None:
    start_job(deployment, lines("ab"))
    first = must_claim(deployment)
    clock_of(deployment).advance(LEASE * 2)
    rescue(deployment)
    shard = load_shard(deployment, first)
    assert (shard.state, shard.owner, shard.lease_until) == (ShardState.QUEUED, None, None)
    second = must_claim(deployment)
    assert second.shard_id == first.shard_id
    assert second.fence > first.fence
    assert second.attempt == 2


def test_stale_holder_can_change_nothing(deployment: Deployment) -> None:
    start_job(deployment, lines("ab"))
    stale = must_claim(deployment)
    part = write_part(deployment, stale)
    clock_of(deployment).advance(LEASE * 2)
    rescue(deployment)
    holder = must_claim(deployment, owner="worker-2")
    with (
        pytest.raises(LeaseLostError, match="no longer held under fence 1"),
        deployment.database.write() as session,
    ):
        claims.commit_part(session, stale, part)
    with pytest.raises(LeaseLostError):
        finish(deployment, stale)
    assert not release(deployment, stale)
    assert heartbeat(deployment, stale) == [stale]
    with deployment.database.read() as session:
        assert claims.committed_parts(session, stale.shard_id) == []
    assert load_shard(deployment, holder).owner == "worker-2"


def test_commit_is_void_between_rescue_and_the_next_claim(deployment: Deployment) -> None:
    start_job(deployment, lines("ab"))
    stale = must_claim(deployment)
    clock_of(deployment).advance(LEASE * 2)
    rescue(deployment)
    with pytest.raises(LeaseLostError):
        answer(deployment, stale)


def test_parts_of_all_holders_count_oldest_first(deployment: Deployment) -> None:
    start_job(deployment, lines("abcd"), shard_max_lines=4)
    first = must_claim(deployment)
    answer(deployment, first, number=0, lines=[3])
    answer(deployment, first, number=1, lines=[1])
    release(deployment, first)
    second = must_claim(deployment)
    answer(deployment, second, number=0, lines=[2, 4])
    with deployment.database.read() as session:
        parts = claims.committed_parts(session, first.shard_id)
    assert [(part.fence, part.number) for part in parts] == [(1, 0), (1, 1), (2, 0)]
    assert sum(part.completed_lines for part in parts) == 4
    finish(deployment, second)
    assert load_shard(deployment, second).state is ShardState.DONE


def test_committed_part_clears_the_attempts(deployment: Deployment) -> None:
    start_job(deployment, lines("abcd"), shard_max_lines=4)
    for expected in (1, 2):
        held = must_claim(deployment)
        assert held.attempt == expected
        release_owner(deployment, held.owner)
    held = must_claim(deployment)
    answer(deployment, held, lines=[1])
    release_owner(deployment, held.owner)
    assert must_claim(deployment).attempt == 1


def test_released_shard_has_burnt_no_attempt(deployment: Deployment) -> None:
    start_job(deployment, lines("ab"))
    for _ in range(3):
        held = must_claim(deployment)
        assert held.attempt == 1
        assert release(deployment, held)


def test_release_after_a_committed_part_keeps_attempts_at_zero(deployment: Deployment) -> None:
    start_job(deployment, lines("abcd"), shard_max_lines=4)
    held = must_claim(deployment)
    answer(deployment, held, lines=[1])
    assert release(deployment, held)
    assert load_shard(deployment, held).attempt == 0


def test_finished_shard_has_no_holder_and_is_not_claimed_again(deployment: Deployment) -> None:
    start_job(deployment, lines("ab"))
    held = must_claim(deployment)
    complete(deployment, held)
    shard = load_shard(deployment, held)
    assert (shard.state, shard.owner, shard.lease_until) == (ShardState.DONE, None, None)
    assert claim(deployment) is None
    assert heartbeat(deployment, held) == [held]


@pytest.mark.parametrize("committed", [[1], []])
def test_finish_refuses_a_shard_with_lines_unanswered(
    deployment: Deployment, committed: list[int]
) -> None:
    start_job(deployment, lines("ab"))
    held = must_claim(deployment)
    answer(deployment, held, lines=committed)
    with pytest.raises(IntegrityError, match=f"has 2 lines, .* results for {len(committed)}"):
        finish(deployment, held)
    assert load_shard(deployment, held).state is ShardState.RUNNING


def test_dead_owner_loses_only_its_own_shards(deployment: Deployment) -> None:
    start_job(deployment, lines("abcdef"))
    dead = [must_claim(deployment, owner="dead") for _ in range(2)]
    alive = must_claim(deployment, owner="alive")
    with deployment.database.read() as session:
        assert claims.owners(session) == {"dead", "alive"}
    assert release_owner(deployment, "dead") == 2
    assert heartbeat(deployment, *dead, alive) == dead
    with deployment.database.read() as session:
        assert claims.owners(session) == {"alive"}


def test_next_model_is_that_of_the_shard_that_would_be_claimed(deployment: Deployment) -> None:
    later = start_job(deployment, lines("ab", model="x"), completion_window="7d")
    sooner = start_job(deployment, [*lines("ab", model="y"), *lines("cd", model="z")])
    assert next_model(deployment) == "y"
    assert next_model(deployment, models=["x", "z"]) == "z"
    assert next_model(deployment, without=["y", "z"]) == "x"
    assert next_model(deployment, job_id=later) == "x"
    must_claim(deployment, models=["y"])
    assert next_model(deployment, job_id=sooner) == "z"


def test_first_shard_of_each_job_and_model_comes_before_the_second_of_any(
    deployment: Deployment,
) -> None:
    long = start_job(deployment, lines("abcdef"))
    two_models = [*lines("gh", model="x"), *lines("ijkl", model="y")]
    mixed = start_job(deployment, two_models, completion_window="7d")
    order = [must_claim(deployment) for _ in range(6)]
    assert [(held.job_id, held.number) for held in order] == [
        (long, 0),
        (mixed, 0),
        (mixed, 1),
        (long, 1),
        (long, 2),
        (mixed, 2),
    ]


def test_rescued_first_shard_has_no_second_lead(deployment: Deployment) -> None:
    urgent = start_job(deployment, lines("abcd"))
    other = start_job(deployment, lines("abcd"), completion_window="7d")
    first = [must_claim(deployment) for _ in range(2)]
    with deployment.database.write() as session:
        for held in first:
            claims.release(session, held)
    order = [must_claim(deployment) for _ in range(4)]
    assert [held.job_id for held in order] == [urgent, urgent, other, other]


def test_priority_orders_jobs_whose_windows_close_in_the_same_hour(deployment: Deployment) -> None:
    clock_of(deployment).advance(timedelta(minutes=55, seconds=55))  # to the full hour
    plain = start_job(deployment, lines("abcd"))
    clock_of(deployment).advance(timedelta(minutes=59))
    high = start_job(deployment, lines("abcd"), priority=5)
    clock_of(deployment).advance(timedelta(minutes=1))
    next_hour = start_job(deployment, lines("abcd"), priority=9)
    leads, rest = ([must_claim(deployment).job_id for _ in range(3)] for _ in range(2))
    assert leads == rest == [high, plain, next_hour]


def test_live_shards_are_those_somebody_holds(deployment: Deployment) -> None:
    job_id = start_job(deployment, lines("abcdef"))
    complete(deployment, must_claim(deployment))
    must_claim(deployment)
    with deployment.database.read() as session:
        assert claims.live_shards(session, job_id) == 1
        assert claims.live_shards(session, "batch_none") == 0


def test_part_that_is_committed_again_counts_once(deployment: Deployment) -> None:
    """As by a worker that has missed the reply to its commit."""
    start_job(deployment, lines("abcd"), shard_max_lines=4)
    held = must_claim(deployment)
    part = write_part(deployment, held, lines=[1])
    for _ in range(2):
        with deployment.database.write() as session:
            claims.commit_part(session, held, part)
    with deployment.database.read() as session:
        assert len(claims.committed_parts(session, held.shard_id)) == 1


def test_other_part_under_a_committed_number_is_refused(deployment: Deployment) -> None:
    start_job(deployment, lines("abcd"), shard_max_lines=4)
    held = must_claim(deployment)
    part = write_part(deployment, held, lines=[1])
    with deployment.database.write() as session:
        claims.commit_part(session, held, part)
    with (
        pytest.raises(IntegrityError, match=r"Part 0 of shard 0 .* with other contents"),
        deployment.database.write() as session,
    ):
        claims.commit_part(session, held, replace(part, sha256="0" * 64))


def test_shards_are_listed_in_file_order_with_their_parts(deployment: Deployment) -> None:
    job_id = start_job(deployment, lines("abcd"))
    held = must_claim(deployment)
    answer(deployment, held, lines=[2])
    with deployment.database.read() as session:
        found = claims.shards(session, job_id)
    assert [shard.state for shard in found] == [ShardState.RUNNING, ShardState.QUEUED]
    assert [shard.work.first_line for shard in found] == [1, 3]
    assert [len(shard.parts) for shard in found] == [1, 0]
