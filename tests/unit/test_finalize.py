from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, update

from batchjobs import finalize as finalize_module
from batchjobs.deployment import Deployment
from batchjobs.errors import IntegrityError, LeaseLostError, NotFoundError, StoreError
from batchjobs.finalize import finalize
from batchjobs.ids import line_digest
from batchjobs.jsonl import dump_line
from batchjobs.models import File, Job, Part
from batchjobs.queue import claims, jobs
from batchjobs.queue.claims import Claim
from batchjobs.states import JobState
from batchjobs.store.layout import job_prefix, part_key
from tests.support.disk import file_size_limit
from tests.support.jobs import (
    START,
    answer,
    claim,
    clock_of,
    complete,
    complete_all,
    create_job,
    load_job,
    must_claim,
    open_deployment,
    read_records,
    request_line,
    start_job,
    write_part,
)


@pytest.fixture
def deployment(tmp_path: Path, database_url: str | None) -> Iterator[Deployment]:
    with open_deployment(tmp_path, database_url=database_url) as opened:
        yield opened


def requests(count: int, *, models: str = "x") -> list[dict[str, Any]]:
    """`count` requests that go to the models of `models` in turn."""
    return [
        request_line(f"id-{number}", model=models[number % len(models)])
        for number in range(1, count + 1)
    ]


def ids(records: list[dict[str, Any]]) -> list[int]:
    return [int(record["custom_id"].removeprefix("id-")) for record in records]


def published(deployment: Deployment, job_id: str) -> tuple[list[int], list[int]]:
    """The line numbers in the output and in the error file."""
    job = load_job(deployment, job_id)
    output = read_records(deployment, job.output_file_id)
    return ids(output), ids(read_records(deployment, job.error_file_id))


def cancel(deployment: Deployment, job_id: str) -> None:
    with deployment.database.write() as session:
        jobs.cancel(session, deployment.clock, job_id)


def expire(deployment: Deployment) -> None:
    clock_of(deployment).advance(timedelta(days=2))
    with deployment.database.write() as session:
        jobs.expire_due(session, deployment.clock)


def stored(deployment: Deployment, prefix: str) -> list[str]:
    return list(deployment.store.list(prefix))


def commit_results(deployment: Deployment, held: Claim, results: list[dict[str, Any]]) -> None:
    """Commit a part of any content, as a faulty worker would."""
    data = b"".join(dump_line(result) for result in results)
    facts = write_part(deployment, held, number=9, lines=[])
    key = part_key(held.job_id, held.number, held.fence, 10)
    deployment.store.put(key, data)
    digest = hashlib.sha256(data).hexdigest()
    with deployment.database.write() as session:
        part = replace(facts, key=key, sha256=digest, completed_lines=len(results))
        claims.commit_part(session, held, part)
        claims.finish(session, held)
        jobs.settle(session, deployment.clock, held.job_id)


def result(line: int, custom_id: str) -> dict[str, Any]:
    return {"line": line, "outcome": "completed", "record": {"custom_id": custom_id}}


def assert_nothing_published(deployment: Deployment, job_id: str) -> None:
    job = load_job(deployment, job_id)
    assert job.status is JobState.FINALIZING
    assert (job.output_file_id, job.error_file_id, job.completed_lines) == (None, None, None)
    with deployment.database.read() as session:
        inputs = session.scalars(select(File.key).where(File.purpose == "batch")).all()
    assert stored(deployment, "files/") == sorted(inputs)


def test_results_of_all_shards_are_in_input_order(deployment: Deployment) -> None:
    job_id = start_job(deployment, requests(7), shard_max_lines=3)
    held = [must_claim(deployment) for _ in range(3)]
    for each in reversed(held):
        complete(deployment, each)
    complete_all(deployment, job_id)
    assert finalize(deployment, job_id)
    assert published(deployment, job_id) == ([1, 2, 3, 4, 5, 6, 7], [])


def test_results_of_mixed_models_are_in_input_order(deployment: Deployment) -> None:
    job_id = start_job(deployment, requests(20, models="xyxxzyx"), shard_max_lines=3)
    complete_all(deployment, job_id, failed=[4, 5, 20])
    assert finalize(deployment, job_id)
    failed = [4, 5, 20]
    output, errors = published(deployment, job_id)
    assert output == [number for number in range(1, 21) if number not in failed]
    assert errors == failed


def test_results_within_a_shard_are_in_input_order_however_they_came(
    deployment: Deployment,
) -> None:
    job_id = start_job(deployment, requests(5), shard_max_lines=5)
    held = must_claim(deployment)
    answer(deployment, held, number=0, lines=[4])
    answer(deployment, held, number=1, lines=[1, 5])
    answer(deployment, held, number=2, lines=[2, 3])
    with deployment.database.write() as session:
        claims.finish(session, held)
        jobs.settle(session, deployment.clock, job_id)
    finalize(deployment, job_id)
    assert published(deployment, job_id) == ([1, 2, 3, 4, 5], [])


def test_published_job_has_final_counts_and_files_with_rows(deployment: Deployment) -> None:
    job_id = start_job(deployment, requests(3))
    complete_all(deployment, job_id, failed=[2])
    clock_of(deployment).advance(timedelta(minutes=5))
    finalize(deployment, job_id)
    job = load_job(deployment, job_id)
    assert (job.status, job.completed_at) == (JobState.COMPLETED, START + timedelta(minutes=5))
    assert (job.completed_lines, job.failed_lines) == (2, 1)
    assert (job.prompt_tokens, job.cached_tokens, job.completion_tokens) == (30, 3, 15)
    with deployment.database.read() as session:
        rows = {file.filename: file for file in session.scalars(select(File))}
        assert session.scalar(select(func.count()).select_from(Part)) == 0
    output = rows[f"{job_id}_output.jsonl"]
    assert (output.id, output.purpose) == (job.output_file_id, "batch_output")
    assert rows[f"{job_id}_error.jsonl"].id == job.error_file_id
    with deployment.store.open(output.key) as stream:
        data = stream.read()
    assert (output.bytes, output.sha256) == (len(data), hashlib.sha256(data).hexdigest())


def test_published_job_names_every_engine_that_computed_results(deployment: Deployment) -> None:
    job_id = start_job(deployment, requests(4), shard_max_lines=4)
    held = must_claim(deployment)
    answer(deployment, held, number=0, lines=[1], fingerprint="fp_b_int8")
    answer(deployment, held, number=1, lines=[2], fingerprint="fp_a")
    answer(deployment, held, number=2, lines=[3], failed=[3], fingerprint="fp_b_int8")
    answer(deployment, held, number=3, lines=[4])
    with deployment.database.write() as session:
        claims.finish(session, held)
        jobs.settle(session, deployment.clock, job_id)
    assert load_job(deployment, job_id).system_fingerprints is None
    finalize(deployment, job_id)
    assert load_job(deployment, job_id).system_fingerprints == ["fp_a", "fp_b_int8"]


def test_published_job_of_which_nothing_ran_names_no_engine(deployment: Deployment) -> None:
    job_id = start_job(deployment, requests(2))
    cancel(deployment, job_id)
    assert finalize(deployment, job_id)
    assert load_job(deployment, job_id).system_fingerprints is None


def test_parts_are_removed_after_publishing(deployment: Deployment) -> None:
    job_id = start_job(deployment, requests(3))
    complete_all(deployment, job_id)
    other = start_job(deployment, requests(2))
    answer(deployment, must_claim(deployment))
    finalize(deployment, job_id)
    assert stored(deployment, job_prefix(job_id)) == []
    assert len(stored(deployment, job_prefix(other))) == 1


def test_record_is_published_as_the_worker_wrote_it(deployment: Deployment) -> None:
    job_id = start_job(deployment, requests(1))
    record = {
        "id": "batch_req_1",
        "custom_id": "id-1",
        "response": {"body": {"text": "a\u2028b\u0085c\x0b é 🙂", "p": 0.1, "n": 2**63}},
    }
    entry = {"line": 1, "outcome": "completed", "record": record}
    commit_results(deployment, must_claim(deployment), [entry])
    finalize(deployment, job_id)
    assert read_records(deployment, load_job(deployment, job_id).output_file_id) == [record]


@pytest.mark.parametrize("failed", [[], [1, 2, 3]])
def test_file_that_would_be_empty_does_not_exist(deployment: Deployment, failed: list[int]) -> None:
    job_id = start_job(deployment, requests(3))
    complete_all(deployment, job_id, failed=failed)
    finalize(deployment, job_id)
    job = load_job(deployment, job_id)
    assert job.status is JobState.COMPLETED
    assert (job.output_file_id is None, job.error_file_id is None) == (bool(failed), not failed)
    assert len(stored(deployment, "files/")) == 2


def test_unrun_lines_of_a_cancelled_job_are_in_the_error_file(deployment: Deployment) -> None:
    job_id = start_job(deployment, requests(9, models="xy"), shard_max_lines=2)
    complete(deployment, must_claim(deployment), failed=[3])
    held = must_claim(deployment)
    answer(deployment, held, lines=[held.first_line])
    cancel(deployment, job_id)
    assert finalize(deployment, job_id)
    job = load_job(deployment, job_id)
    assert job.status is JobState.CANCELLED
    assert (job.completed_lines, job.failed_lines) == (2, 1)
    output, errors = published(deployment, job_id)
    assert output == [1, 2]
    assert errors == [3, 4, 5, 6, 7, 8, 9]
    assert read_records(deployment, job.error_file_id)[-1] == {
        "id": f"batch_req_{line_digest(job_id, 9)}",
        "custom_id": "id-9",
        "response": None,
        "error": {
            "code": "batch_cancelled",
            "message": "This request was not executed because the batch was cancelled.",
        },
    }


def test_unrun_lines_of_an_expired_job_are_in_the_error_file(deployment: Deployment) -> None:
    job_id = start_job(deployment, requests(4))
    complete(deployment, must_claim(deployment))
    expire(deployment)
    assert finalize(deployment, job_id)
    job = load_job(deployment, job_id)
    assert (job.status, job.expired_at) == (JobState.EXPIRED, START + timedelta(days=2))
    assert published(deployment, job_id) == ([1, 2], [3, 4])
    assert read_records(deployment, job.error_file_id)[0]["error"] == {
        "code": "batch_expired",
        "message": "This request could not be executed before the completion window expired.",
    }


def test_cancelled_job_whose_lines_are_all_done_has_no_unrun_line(deployment: Deployment) -> None:
    job_id = start_job(deployment, requests(4))
    while (held := claim(deployment)) is not None:
        complete(deployment, held)
    cancel(deployment, job_id)
    finalize(deployment, job_id)
    assert load_job(deployment, job_id).status is JobState.CANCELLED
    assert published(deployment, job_id) == ([1, 2, 3, 4], [])


@pytest.mark.parametrize("end", [cancel, lambda deployment, _: expire(deployment)])
def test_job_that_ends_while_validating_has_no_files(deployment: Deployment, end: Any) -> None:
    job_id = create_job(deployment)
    end(deployment, job_id)
    assert finalize(deployment, job_id)
    job = load_job(deployment, job_id)
    assert job.status in (JobState.CANCELLED, JobState.EXPIRED)
    assert (job.output_file_id, job.error_file_id, job.total_lines) == (None, None, 0)


def test_finalizing_takes_shards_away_from_workers_that_still_run(deployment: Deployment) -> None:
    job_id = start_job(deployment, requests(4), shard_max_lines=4)
    held = must_claim(deployment)
    answer(deployment, held, lines=[1])
    late = write_part(deployment, held, number=1, lines=[2])
    cancel(deployment, job_id)
    finalize(deployment, job_id)
    with deployment.database.write() as session:
        assert claims.heartbeat(session, deployment.clock, [held], 60) == [held]
    with pytest.raises(LeaseLostError), deployment.database.write() as session:
        claims.commit_part(session, held, late)
    assert published(deployment, job_id) == ([1], [2, 3, 4])


def test_finalize_does_nothing_for_a_job_that_runs(deployment: Deployment) -> None:
    job_id = start_job(deployment, requests(4))
    answer(deployment, must_claim(deployment))
    before = stored(deployment, "")
    assert not finalize(deployment, job_id)
    assert load_job(deployment, job_id).status is JobState.IN_PROGRESS
    assert stored(deployment, "") == before
    assert claim(deployment) is not None


def test_finalize_of_an_unknown_job_is_not_found(deployment: Deployment) -> None:
    with pytest.raises(NotFoundError):
        finalize(deployment, "batch_none")


def test_finalize_again_publishes_nothing_more(deployment: Deployment) -> None:
    job_id = start_job(deployment, requests(3))
    complete_all(deployment, job_id)
    assert finalize(deployment, job_id)
    before = stored(deployment, "")
    assert not finalize(deployment, job_id)
    assert stored(deployment, "") == before


def test_finalize_again_removes_what_a_crash_has_left(deployment: Deployment) -> None:
    job_id = start_job(deployment, requests(3))
    complete_all(deployment, job_id)
    finalize(deployment, job_id)
    deployment.store.put(part_key(job_id, 0, 1, 0), b"left behind")
    assert not finalize(deployment, job_id)
    assert stored(deployment, job_prefix(job_id)) == []
    assert published(deployment, job_id) == ([1, 2, 3], [])


@pytest.mark.parametrize("failed", [[], [2]])
def test_two_processes_that_finalize_at_once_publish_once(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, failed: list[int]
) -> None:
    """Both have written their files before either publishes."""
    job_id = start_job(deployment, requests(5))
    complete_all(deployment, job_id, failed=failed)
    barrier = threading.Barrier(2)
    commit = finalize_module._commit

    def commit_together(*args: Any) -> bool:
        barrier.wait(timeout=30)
        return commit(*args)

    monkeypatch.setattr(finalize_module, "_commit", commit_together)
    won: list[bool] = []
    threads = [
        threading.Thread(target=lambda: won.append(finalize(deployment, job_id))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == [False, True]
    output, errors = published(deployment, job_id)
    assert sorted(output + errors) == [1, 2, 3, 4, 5]
    assert len(stored(deployment, "files/")) == 2 + len(failed)


def test_process_that_comes_late_leaves_what_the_first_published(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first has published and removed the parts when the second begins to read them."""
    job_id = start_job(deployment, requests(3))
    complete_all(deployment, job_id)
    merge = finalize_module._merge

    def merge_late(*args: Any) -> Any:
        monkeypatch.setattr(finalize_module, "_merge", merge)
        assert finalize(deployment, job_id)
        return merge(*args)

    monkeypatch.setattr(finalize_module, "_merge", merge_late)
    assert not finalize(deployment, job_id)
    assert published(deployment, job_id) == ([1, 2, 3], [])
    assert len(stored(deployment, "files/")) == 2


def test_damaged_part_is_an_integrity_error_that_names_it(deployment: Deployment) -> None:
    job_id = start_job(deployment, requests(3))
    complete_all(deployment, job_id)
    damaged = stored(deployment, job_prefix(job_id))[-1]
    deployment.store.delete(damaged)
    deployment.store.put(damaged, b'{"line":3}\n')
    with pytest.raises(IntegrityError, match=f"{damaged} are damaged"):
        finalize(deployment, job_id)
    assert_nothing_published(deployment, job_id)


def test_missing_part_is_an_integrity_error(deployment: Deployment) -> None:
    job_id = start_job(deployment, requests(3))
    complete_all(deployment, job_id)
    deployment.store.delete(stored(deployment, job_prefix(job_id))[0])
    with pytest.raises(IntegrityError, match=f"Results of {job_id} are lost"):
        finalize(deployment, job_id)
    assert_nothing_published(deployment, job_id)


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ([result(1, "id-1"), result(1, "id-1")], "Line 1 of .* has two results"),
        ([result(1, "id-1"), result(3, "id-3")], "Line 2 of .* has no result"),
        ([result(1, "id-2"), result(2, "id-1")], "Line 1 of .* has another line's result"),
    ],
)
def test_results_that_are_not_those_of_the_lines_are_never_published(
    deployment: Deployment, results: list[dict[str, Any]], message: str
) -> None:
    job_id = start_job(deployment, requests(2))
    commit_results(deployment, must_claim(deployment), results)
    with pytest.raises(IntegrityError, match=message):
        finalize(deployment, job_id)
    assert_nothing_published(deployment, job_id)


def test_result_of_a_line_outside_the_shard_is_never_published(deployment: Deployment) -> None:
    job_id = start_job(deployment, requests(2))
    commit_results(deployment, must_claim(deployment), [result(1, "id-1"), result(7, "id-7")])
    with deployment.database.write() as session:
        session.execute(update(Job).values(ending=JobState.EXPIRED))
    with pytest.raises(IntegrityError, match="a result for line 7, which is not one of its lines"):
        finalize(deployment, job_id)
    assert_nothing_published(deployment, job_id)


def test_counts_that_disagree_with_the_parts_are_never_published(deployment: Deployment) -> None:
    job_id = start_job(deployment, requests(2))
    held = must_claim(deployment)
    facts = write_part(deployment, held)
    with deployment.database.write() as session:
        wrong = replace(facts, completed_lines=1, failed_lines=1)
        claims.commit_part(session, held, wrong)
        claims.finish(session, held)
        jobs.settle(session, deployment.clock, job_id)
    with pytest.raises(IntegrityError, match="do not add up: 2 completed, 0 failed"):
        finalize(deployment, job_id)
    assert_nothing_published(deployment, job_id)


def test_full_disk_publishes_nothing_and_another_try_all(deployment: Deployment) -> None:
    """The error file is complete by the time that the output file fails."""
    job_id = start_job(deployment, requests(600), shard_max_lines=20)
    complete_all(deployment, job_id, failed=[600])
    with file_size_limit(30_000), pytest.raises(StoreError, match="File too large"):
        finalize(deployment, job_id)
    assert_nothing_published(deployment, job_id)
    assert finalize(deployment, job_id)
    assert published(deployment, job_id) == (list(range(1, 600)), [600])
