"""Jobs whose lines run in another order than the file's, from intake to the result files."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from sqlalchemy import select

from batchjobs import planner
from batchjobs.deployment import Deployment
from batchjobs.errors import IntegrityError
from batchjobs.files import add_file
from batchjobs.finalize import finalize
from batchjobs.intake import validate
from batchjobs.models import File, Shard
from batchjobs.queue import jobs
from batchjobs.results import results_so_far
from batchjobs.retry import retry
from batchjobs.shard_lines import read_shard
from batchjobs.states import JobState
from batchjobs.store.layout import job_prefix
from batchjobs.worker.runner import run_jobs
from batchjobs.worker.stop import StopSignal
from tests.support.engines import LIMITS, FakeEngines, add_models
from tests.support.jobs import (
    MODEL,
    answer,
    complete,
    complete_all,
    create_job,
    load_job,
    must_claim,
    open_deployment,
    read_records,
    request_line,
)

ROOMY = replace(LIMITS, max_model_len=1024, num_blocks=1024)
SYSTEM = {letter: f"You are {letter}. " * 40 for letter in "abcd"}


@pytest.fixture
def deployment(tmp_path: Path, database_url: str | None) -> Iterator[Deployment]:
    with open_deployment(tmp_path, database_url=database_url, shard_max_lines=4) as opened:
        add_models(opened, MODEL, "other")
        yield opened


def grouped_line(number: int, letter: str, model: str = MODEL) -> dict[str, Any]:
    line = request_line(str(number), model=model)
    line["body"]["messages"].insert(0, {"role": "system", "content": SYSTEM[letter]})
    line["body"] |= {"max_tokens": 3}
    return line


def data_of(letters: str, models: Sequence[str] = ()) -> bytes:
    lines = [
        grouped_line(number, letter, models[number - 1] if models else MODEL)
        for number, letter in enumerate(letters, 1)
    ]
    return b"".join(orjson.dumps(line) + b"\n" for line in lines)


def submit(deployment: Deployment, data: bytes, **options: Any) -> str:
    file = add_file(deployment, io.BytesIO(data), filename="in.jsonl", purpose="batch")
    job_id = create_job(deployment, file.id, **options)
    validate(deployment, job_id)
    assert load_job(deployment, job_id).status == JobState.IN_PROGRESS
    return job_id


def lines_of_shards(deployment: Deployment, job_id: str) -> list[list[int]]:
    """The numbers of each shard's lines in the order in which they run."""
    found = []
    with deployment.database.read() as session:
        count = len(session.scalars(select(Shard.id).where(Shard.job_id == job_id)).all())
    for _ in range(count):
        held = must_claim(deployment, job_id=job_id)
        found.append([line.number for line in read_shard(deployment.store, held)])
    return found


def run(deployment: Deployment) -> None:
    run_jobs(
        deployment,
        engines=FakeEngines(limits=ROOMY),
        stop=StopSignal(grace_seconds=60, forced_exit=9),
    )


def custom_ids(deployment: Deployment, file_id: str | None) -> list[int]:
    return [int(record["custom_id"]) for record in read_records(deployment, file_id)]


def test_lines_with_a_common_opening_are_in_one_shard_side_by_side(deployment: Deployment) -> None:
    job_id = submit(deployment, data_of("abcdabcdabcd"))
    assert lines_of_shards(deployment, job_id) == [[1, 5, 9, 2], [6, 10, 3, 7], [11, 4, 8, 12]]


def test_results_are_those_of_the_file_in_its_order(deployment: Deployment) -> None:
    models = [MODEL, "other", MODEL] * 4
    data = data_of("abcdabcdabcd", models)
    planned = submit(deployment, data)
    run(deployment)
    job = load_job(deployment, planned)
    assert job.plan_key is not None
    records = read_records(deployment, job.output_file_id)
    assert [int(record["custom_id"]) for record in records] == list(range(1, 13))
    assert [record["response"]["body"]["model"] for record in records] == models
    assert list(deployment.store.list(job_prefix(planned))) == []


def test_answers_do_not_depend_on_the_order(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = data_of("abab")
    planned = submit(deployment, data)
    monkeypatch.setattr(planner, "SHORTEST_OPENING", 1 << 20)
    plain = submit(deployment, data)
    run(deployment)
    answers = []
    for job_id in (planned, plain):
        job = load_job(deployment, job_id)
        assert (job.plan_key is None) == (job_id == plain)
        records = read_records(deployment, job.output_file_id)
        answers.append([record["response"]["body"]["choices"] for record in records])
    assert len(answers[0]) == 4
    assert answers[0] == answers[1]


def test_odd_endings_of_lines_are_read_as_everywhere(deployment: Deployment) -> None:
    first, *rest = data_of("abab").splitlines()
    data = b"\xef\xbb\xbf" + first + b"\r\n\n" + b"\r\n".join(rest)
    job_id = submit(deployment, data)
    assert lines_of_shards(deployment, job_id) == [[1, 4, 3, 5]]
    complete_all(deployment, job_id)


def test_windows_are_ordered_each_by_itself(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "WINDOW_LINES", 4)
    job_id = submit(deployment, data_of("ababaabbbaba"))
    run(deployment)
    job = load_job(deployment, job_id)
    assert custom_ids(deployment, job.output_file_id) == list(range(1, 13))


def test_cancelled_and_failed_lines_end_in_the_error_file_in_order(deployment: Deployment) -> None:
    job_id = submit(deployment, data_of("abcdabcdabcd"))
    complete(deployment, must_claim(deployment), failed=(5,))
    answer(deployment, must_claim(deployment), lines=(3, 10))
    with deployment.database.write() as session:
        jobs.cancel(session, deployment.clock, job_id)
    assert finalize(deployment, job_id)
    job = load_job(deployment, job_id)
    assert custom_ids(deployment, job.output_file_id) == [1, 2, 3, 9, 10]
    assert custom_ids(deployment, job.error_file_id) == [4, 5, 6, 7, 8, 11, 12]
    again = load_job(deployment, retry(deployment, job_id).id)
    assert custom_ids(deployment, again.input_file_id) == [4, 5, 6, 7, 8, 11, 12]


def test_results_so_far_miss_no_line(deployment: Deployment) -> None:
    job_id = submit(deployment, data_of("abcdabcdabcd"))
    seen: set[int] = set()
    offset = 0
    for _ in range(3):
        complete(deployment, must_claim(deployment))
        found = results_so_far(deployment, job_id, offset=offset)
        numbers = [int(json.loads(line)["custom_id"]) for line in found.lines]
        assert numbers == sorted(numbers)
        seen |= set(numbers)
        assert set(range(1, found.last_line + 1)) <= seen
        offset = found.last_line
    assert seen == set(range(1, 13))


def test_a_bad_file_leaves_no_object_behind(deployment: Deployment) -> None:
    data = data_of("abab") + b"no json\n"
    file = add_file(deployment, io.BytesIO(data), filename="in.jsonl", purpose="batch")
    job_id = create_job(deployment, file.id)
    validate(deployment, job_id)
    assert load_job(deployment, job_id).status == JobState.FAILED
    assert list(deployment.store.list(job_prefix(job_id))) == []


def test_damaged_object_of_moved_lines_is_never_run(deployment: Deployment) -> None:
    job_id = submit(deployment, data_of("abab"))
    key = load_job(deployment, job_id).plan_key
    assert key is not None
    with deployment.store.open(key) as stream:
        data = stream.read()
    deployment.store.delete(key)
    deployment.store.put(key, data.replace(b"\n3\t", b"\n3 "))
    with pytest.raises(IntegrityError, match="has no number"):
        list(read_shard(deployment.store, must_claim(deployment)))


def test_manifest_says_what_the_results_came_from(deployment: Deployment) -> None:
    job_id = submit(deployment, data_of("abab"))
    complete_all(deployment, job_id)
    assert finalize(deployment, job_id)
    with deployment.store.open(f"manifests/{job_id}.json") as stream:
        manifest = json.loads(stream.read())
    job = load_job(deployment, job_id)
    with deployment.database.read() as session:
        file = session.get(File, job.input_file_id)
    assert file is not None
    assert manifest["input"] == {"file": file.id, "sha256": file.sha256, "lines": 4}
    assert manifest["ending"] == "completed"
    (shard,) = manifest["shards"]
    assert [part["completed"] for part in shard["parts"]] == [4]


def test_other_manifest_stops_publishing(deployment: Deployment) -> None:
    job_id = submit(deployment, data_of("abab"))
    complete_all(deployment, job_id)
    deployment.store.put(f"manifests/{job_id}.json", b"{}")
    with pytest.raises(IntegrityError, match="another process wrote"):
        finalize(deployment, job_id)
    assert load_job(deployment, job_id).status == JobState.FINALIZING
