from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import select, update

from batchjobs.cutter import PlannedShard
from batchjobs.deployment import Deployment
from batchjobs.endpoints.base import LineProblem
from batchjobs.errors import ConflictError, IntegrityError, InvalidRequestError, NotFoundError
from batchjobs.intake import FoundProblem
from batchjobs.models import Job, Shard
from batchjobs.queue import claims, jobs, tallies
from batchjobs.queue.tallies import Tally
from batchjobs.states import JOB_NEXT, TERMINAL, JobState, ShardState
from tests.support.jobs import (
    START,
    answer,
    claim,
    clock_of,
    complete,
    create_job,
    load_job,
    must_claim,
    open_deployment,
    request_line,
    start_job,
)

PROBLEM = LineProblem(code="invalid_request", message="It is wrong.", param="body.x")


@pytest.fixture
def deployment(tmp_path: Path, database_url: str | None) -> Iterator[Deployment]:
    with open_deployment(tmp_path, database_url=database_url) as opened:
        yield opened


def put_in_state(deployment: Deployment, state: JobState) -> str:
    """A job that the database says is in `state`, however it came there."""
    job_id = create_job(deployment)
    ending = JobState.COMPLETED if state == JobState.FINALIZING else None
    with deployment.database.write() as session:
        session.execute(update(Job).where(Job.id == job_id).values(status=state, ending=ending))
    return job_id


def shard(number: int, *, lines: int = 2, model: str = "tiny") -> PlannedShard:
    return PlannedShard(
        number=number,
        model=model,
        first_line=number * lines + 1,
        last_line=number * lines + lines,
        line_count=lines,
        byte_start=number * 100,
        byte_end=number * 100 + 100,
    )


def start(deployment: Deployment, job_id: str, shards: list[PlannedShard]) -> bool:
    with deployment.database.write() as session:
        return jobs.start(
            session,
            deployment.clock,
            job_id,
            shards=shards,
            models={"tiny": "tiny"},
            total_lines=sum(each.line_count for each in shards),
            total_bytes=100 * len(shards),
        )


def settle(deployment: Deployment, job_id: str) -> JobState | None:
    with deployment.database.write() as session:
        return jobs.settle(session, deployment.clock, job_id)


def cancel(deployment: Deployment, job_id: str) -> JobState:
    with deployment.database.write() as session:
        return jobs.cancel(session, deployment.clock, job_id).status


def expire(deployment: Deployment) -> list[str]:
    with deployment.database.write() as session:
        return jobs.expire_due(session, deployment.clock)


def publish(deployment: Deployment, job_id: str, tally: Tally | None = None) -> bool:
    with deployment.database.write() as session:
        return jobs.publish(
            session,
            deployment.clock,
            job_id,
            output_file_id="file-output",
            error_file_id=None,
            tally=tally or Tally(),
        )


def shard_states(deployment: Deployment, job_id: str) -> list[ShardState]:
    with deployment.database.read() as session:
        query = select(Shard.state).where(Shard.job_id == job_id).order_by(Shard.number)
        return list(session.scalars(query))


def test_created_job_is_validating_until_its_window_closes(deployment: Deployment) -> None:
    job_id = create_job(
        deployment, completion_window="48h", metadata={"team": "evals"}, model_override="m", seed=-5
    )
    job = load_job(deployment, job_id)
    assert job.status is JobState.VALIDATING
    assert job.created_at == START
    assert job.expires_at == START + timedelta(hours=48)
    assert (job.job_metadata, job.model_override, job.seed) == ({"team": "evals"}, "m", -5)
    assert (job.total_lines, job.models, job.ending) == (0, {}, None)


def test_create_refuses_a_window_beyond_the_longest(deployment: Deployment) -> None:
    with pytest.raises(InvalidRequestError, match="Invalid value: '25h'"):
        create_job(deployment, completion_window="25h", max_window_hours=24)


def test_unknown_job_is_not_found(deployment: Deployment) -> None:
    with pytest.raises(NotFoundError, match=r"^No batch found with id 'batch_none'\.$"):
        load_job(deployment, "batch_none")


def page(deployment: Deployment, limit: int, after: str | None = None) -> tuple[list[str], bool]:
    with deployment.database.read() as session:
        found, has_more = jobs.page(session, limit=limit, after=after)
        return [job.id for job in found], has_more


def test_pages_are_newest_first_and_meet_without_gap_or_overlap(deployment: Deployment) -> None:
    created = []
    for n in range(7):
        created.append(create_job(deployment))
        if n % 3 == 2:  # some jobs share their moment: the id decides
            clock_of(deployment).advance(timedelta(seconds=1))
    listed, after, more = [], None, True
    while more:
        ids, more = page(deployment, 2, after)
        listed += ids
        after = ids[-1]
    assert sorted(listed) == sorted(created)
    moments = [load_job(deployment, job_id).created_at for job_id in listed]
    assert moments == sorted(moments, reverse=True)


def test_page_that_ends_with_the_last_job_has_no_more(deployment: Deployment) -> None:
    job_id = create_job(deployment)
    assert page(deployment, 1) == ([job_id], False)
    assert page(deployment, 1, after=job_id) == ([], False)
    assert page(deployment, 0) == ([], False)


def test_page_is_of_one_tenant_or_of_all(deployment: Deployment) -> None:
    mine, other = create_job(deployment, tenant="mine"), create_job(deployment, tenant="other")
    with deployment.database.read() as session:
        for tenant, wanted in (("mine", {mine}), ("none", set()), (None, {mine, other})):
            found, has_more = jobs.page(session, limit=2, tenant=tenant)
            assert ({job.id for job in found}, has_more) == (wanted, False)


def test_page_after_an_unknown_job_is_not_found(deployment: Deployment) -> None:
    with pytest.raises(NotFoundError):
        page(deployment, 1, after="batch_none")


def test_failed_validation_lists_every_problem_in_order(deployment: Deployment) -> None:
    job_id = create_job(deployment)
    problems = [FoundProblem(line=line, problem=PROBLEM) for line in (2, 7, None)]
    with deployment.database.write() as session:
        assert jobs.fail_validation(session, deployment.clock, job_id, problems)
    job = load_job(deployment, job_id)
    assert (job.status, job.failed_at) == (JobState.FAILED, START)
    with deployment.database.read() as session:
        found = jobs.errors(session, job_id)
    assert [error.line for error in found] == [2, 7, None]
    assert (found[0].code, found[0].message, found[0].param) == (
        PROBLEM.code,
        PROBLEM.message,
        PROBLEM.param,
    )


def test_failed_validation_of_a_cancelled_job_changes_nothing(deployment: Deployment) -> None:
    job_id = create_job(deployment)
    cancel(deployment, job_id)
    with deployment.database.write() as session:
        problems = [FoundProblem(line=1, problem=PROBLEM)]
        assert not jobs.fail_validation(session, deployment.clock, job_id, problems)
        assert jobs.errors(session, job_id) == []
    assert load_job(deployment, job_id).status is JobState.CANCELLING


def test_start_makes_the_shards_claimable_once(deployment: Deployment) -> None:
    job_id = create_job(deployment)
    assert start(deployment, job_id, [shard(0), shard(1)])
    assert not start(deployment, job_id, [shard(0), shard(1)])
    job = load_job(deployment, job_id)
    assert (job.status, job.in_progress_at) == (JobState.IN_PROGRESS, START)
    assert (job.total_lines, job.total_bytes, job.models) == (4, 200, {"tiny": "tiny"})
    assert shard_states(deployment, job_id) == [ShardState.QUEUED, ShardState.QUEUED]


def test_start_of_a_cancelled_job_makes_no_shards(deployment: Deployment) -> None:
    job_id = create_job(deployment)
    cancel(deployment, job_id)
    assert not start(deployment, job_id, [shard(0)])
    assert shard_states(deployment, job_id) == []


def test_start_refuses_shards_that_do_not_add_up(deployment: Deployment) -> None:
    job_id = create_job(deployment)

    def start_short() -> None:
        with deployment.database.write() as session:
            jobs.start(
                session,
                deployment.clock,
                job_id,
                shards=[shard(0)],
                models={},
                total_lines=3,
                total_bytes=0,
            )

    with pytest.raises(IntegrityError, match="have 2 lines, but the file has 3"):
        start_short()
    assert load_job(deployment, job_id).status is JobState.VALIDATING


@pytest.mark.parametrize("state", [JobState.VALIDATING, JobState.IN_PROGRESS])
def test_cancel_of_an_open_job_is_cancelling_also_when_asked_again(
    deployment: Deployment, state: JobState
) -> None:
    job_id = put_in_state(deployment, state)
    assert cancel(deployment, job_id) is JobState.CANCELLING
    clock_of(deployment).advance(timedelta(minutes=1))
    assert cancel(deployment, job_id) is JobState.CANCELLING
    assert load_job(deployment, job_id).cancelling_at == START


def test_cancel_by_another_tenant_changes_nothing(deployment: Deployment) -> None:
    job_id = create_job(deployment, tenant="mine")
    with deployment.database.write() as session:
        with pytest.raises(NotFoundError):
            jobs.cancel(session, deployment.clock, job_id, tenant="other")
        assert jobs.get(session, job_id).status is JobState.VALIDATING
        jobs.cancel(session, deployment.clock, job_id, tenant="mine")
    assert load_job(deployment, job_id).status is JobState.CANCELLING


def test_cancel_of_a_cancelled_job_is_fine(deployment: Deployment) -> None:
    job_id = put_in_state(deployment, JobState.CANCELLED)
    assert cancel(deployment, job_id) is JobState.CANCELLED


@pytest.mark.parametrize(
    "state", [JobState.COMPLETED, JobState.FAILED, JobState.EXPIRED, JobState.FINALIZING]
)
def test_cancel_of_an_ended_or_finalizing_job_is_a_conflict(
    deployment: Deployment, state: JobState
) -> None:
    job_id = put_in_state(deployment, state)
    with pytest.raises(ConflictError, match=f"^Cannot cancel a batch with status '{state}'"):
        cancel(deployment, job_id)
    assert load_job(deployment, job_id).status is state


@pytest.mark.parametrize("state", [JobState.VALIDATING, JobState.IN_PROGRESS])
def test_open_job_expires_when_its_window_closes(deployment: Deployment, state: JobState) -> None:
    job_id = put_in_state(deployment, state)
    clock_of(deployment).advance(timedelta(hours=24) - timedelta(microseconds=1))
    assert expire(deployment) == []
    clock_of(deployment).advance(timedelta(microseconds=1))
    assert expire(deployment) == [job_id]
    assert expire(deployment) == []
    job = load_job(deployment, job_id)
    assert (job.status, job.ending) == (JobState.FINALIZING, JobState.EXPIRED)
    assert job.finalizing_at == START + timedelta(hours=24)


@pytest.mark.parametrize("state", sorted(TERMINAL | {JobState.CANCELLING, JobState.FINALIZING}))
def test_closing_job_does_not_expire(deployment: Deployment, state: JobState) -> None:
    job_id = put_in_state(deployment, state)
    clock_of(deployment).advance(timedelta(days=9))
    assert expire(deployment) == []
    assert load_job(deployment, job_id).status is state


def test_job_settles_when_its_last_shard_is_done(deployment: Deployment) -> None:
    job_id = start_job(deployment, [request_line(name) for name in "abcd"])
    assert settle(deployment, job_id) is None
    complete(deployment, must_claim(deployment))
    assert settle(deployment, job_id) is None
    complete(deployment, must_claim(deployment))
    assert settle(deployment, job_id) is JobState.FINALIZING
    job = load_job(deployment, job_id)
    assert (job.status, job.ending) == (JobState.FINALIZING, JobState.COMPLETED)
    assert settle(deployment, job_id) is JobState.FINALIZING


def test_validating_job_does_not_settle(deployment: Deployment) -> None:
    """It has no shard that is not done, but it has no shard at all yet."""
    job_id = create_job(deployment)
    assert settle(deployment, job_id) is JobState.VALIDATING
    assert load_job(deployment, job_id).status == JobState.VALIDATING
    assert load_job(deployment, job_id).status is JobState.VALIDATING


def test_cancelled_job_settles_when_no_shard_runs(deployment: Deployment) -> None:
    job_id = start_job(deployment, [request_line(name) for name in "abcd"])
    held = must_claim(deployment)
    cancel(deployment, job_id)
    assert settle(deployment, job_id) is None
    with deployment.database.write() as session:
        claims.release(session, held)
    assert settle(deployment, job_id) is JobState.CANCELLING
    assert load_job(deployment, job_id).status is JobState.CANCELLING


def close(deployment: Deployment, job_id: str) -> int:
    with deployment.database.write() as session:
        return jobs.close_shards(session, job_id)


def test_closing_ends_open_shards_and_voids_their_writers(deployment: Deployment) -> None:
    job_id = start_job(deployment, [request_line(name) for name in "abcdef"])
    complete(deployment, must_claim(deployment))
    held = must_claim(deployment)
    cancel(deployment, job_id)
    assert close(deployment, job_id) == 2
    assert shard_states(deployment, job_id) == [
        ShardState.DONE,
        ShardState.CLOSED,
        ShardState.CLOSED,
    ]
    with deployment.database.write() as session:
        assert claims.heartbeat(session, deployment.clock, [held], 60) == [held]
        assert not claims.release(session, held)
        assert session.get_one(Shard, held.shard_id).fence > held.fence
    assert close(deployment, job_id) == 0


def test_closing_leaves_a_job_that_goes_on_alone(deployment: Deployment) -> None:
    job_id = start_job(deployment, [request_line(name) for name in "ab"])
    assert close(deployment, job_id) == 0
    assert claim(deployment) is not None


def end(deployment: Deployment, job_id: str, ending: JobState) -> None:
    """Bring a job in progress to the point where it can be published as `ending`."""
    match ending:
        case JobState.COMPLETED:
            complete(deployment, must_claim(deployment))
            settle(deployment, job_id)
        case JobState.CANCELLED:
            cancel(deployment, job_id)
        case JobState.EXPIRED:
            clock_of(deployment).advance(timedelta(days=2))
            expire(deployment)


@pytest.mark.parametrize("ending", [JobState.COMPLETED, JobState.CANCELLED, JobState.EXPIRED])
def test_publish_sets_state_moment_files_and_counts_together(
    deployment: Deployment, ending: JobState
) -> None:
    job_id = start_job(deployment, [request_line(name) for name in "ab"])
    end(deployment, job_id, ending)
    now = START + timedelta(days=2 if ending is JobState.EXPIRED else 0)
    final = Tally(
        completed=1,
        failed=1,
        prompt_tokens=20,
        cached_tokens=2,
        completion_tokens=10,
        reasoning_tokens=4,
        input_bytes=9,
    )
    assert publish(deployment, job_id, final)
    job = load_job(deployment, job_id)
    assert job.status is ending
    assert getattr(job, f"{ending}_at") == now
    assert (job.output_file_id, job.error_file_id) == ("file-output", None)
    with deployment.database.read() as session:
        tally = tallies.tally(session, job)
    assert (tally.completed, tally.failed) == (1, 1)
    assert (tally.prompt_tokens, tally.cached_tokens, tally.completion_tokens) == (20, 2, 10)
    assert tally.reasoning_tokens == 4
    assert tally.input_bytes == job.total_bytes
    assert not publish(deployment, job_id)


@pytest.mark.parametrize("state", sorted(TERMINAL | {JobState.VALIDATING, JobState.IN_PROGRESS}))
def test_publish_is_refused_in_any_other_state(deployment: Deployment, state: JobState) -> None:
    job_id = put_in_state(deployment, state)
    assert not publish(deployment, job_id)
    job = load_job(deployment, job_id)
    assert (job.status, job.output_file_id, job.completed_lines) == (state, None, None)


def test_tally_of_a_running_job_sums_its_parts(deployment: Deployment) -> None:
    job_id = start_job(deployment, [request_line(name) for name in "abcd"])
    other = start_job(deployment, [request_line(name) for name in "ef"])
    answer(deployment, must_claim(deployment, job_id=job_id), failed=[2])
    answer(deployment, must_claim(deployment, job_id=job_id), lines=[3])
    answer(deployment, must_claim(deployment, job_id=other))
    with deployment.database.read() as session:
        assert tallies.tally(session, jobs.get(session, job_id)) == Tally(
            completed=2,
            failed=1,
            prompt_tokens=30,
            cached_tokens=3,
            completion_tokens=15,
            reasoning_tokens=6,
            input_bytes=300,
        )


def test_tally_of_a_job_without_results_is_zero(deployment: Deployment) -> None:
    job_id = create_job(deployment)
    with deployment.database.read() as session:
        assert tallies.tally(session, jobs.get(session, job_id)) == Tally()


def every_move(deployment: Deployment, job_id: str) -> None:
    """All that can be done to a job from outside; what its state does not allow fails."""
    clock_of(deployment).advance(timedelta(days=9))
    start(deployment, job_id, [shard(0)])
    with deployment.database.write() as session:
        jobs.fail_validation(session, deployment.clock, job_id, [])
    settle(deployment, job_id)
    expire(deployment)
    close(deployment, job_id)
    publish(deployment, job_id)


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_nothing_changes_an_ended_job(deployment: Deployment, state: JobState) -> None:
    job_id = put_in_state(deployment, state)
    before = load_job(deployment, job_id)
    every_move(deployment, job_id)
    after = load_job(deployment, job_id)
    columns = [column.key for column in Job.__mapper__.column_attrs]
    assert {name: getattr(after, name) for name in columns} == {
        name: getattr(before, name) for name in columns
    }


def test_every_state_that_is_not_terminal_leads_to_a_terminal_one() -> None:
    for state in JobState:
        reached, frontier = {state}, [state]
        while frontier:
            new = JOB_NEXT[frontier.pop()] - reached
            reached |= new
            frontier += new
        assert reached & TERMINAL
