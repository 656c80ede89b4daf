from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchjobs.deployment import Deployment
from batchjobs.errors import NotFoundError
from batchjobs.files import add_file, delete_file
from batchjobs.finalize import finalize
from batchjobs.queue import jobs
from batchjobs.results import ResultsSoFar, results_so_far
from batchjobs.worker.tending import tend
from tests.support.engines import add_models
from tests.support.jobs import (
    MODEL,
    answer,
    complete,
    complete_all,
    create_job,
    load_job,
    must_claim,
    open_deployment,
    request_line,
    start_job,
)


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with open_deployment(tmp_path) as opened:
        add_models(opened, MODEL)
        yield opened


def job_of(deployment: Deployment, models: str, **options: int) -> str:
    """A job whose line n, called "n", asks for the model that is the n-th letter."""
    requests = [request_line(str(n), model=model) for n, model in enumerate(models, 1)]
    return start_job(deployment, requests, **options)


def numbers(found: ResultsSoFar) -> list[int]:
    return [int(json.loads(line)["custom_id"]) for line in found.lines]


def test_nothing_is_finished_of_a_new_job(deployment: Deployment) -> None:
    found = results_so_far(deployment, create_job(deployment))
    assert (found.is_complete, found.last_line, numbers(found)) == (False, 0, [])


def test_a_failed_job_is_at_its_end_without_results(deployment: Deployment) -> None:
    job_id = create_job(deployment)
    tend(deployment)
    found = results_so_far(deployment, job_id)
    assert (found.is_complete, found.last_line, numbers(found)) == (True, 0, [])


def test_lines_finished_out_of_order_are_given_in_order(deployment: Deployment) -> None:
    job_id = job_of(deployment, "aaaaaa", shard_max_lines=3)
    first, second = must_claim(deployment), must_claim(deployment)
    answer(deployment, second, lines=(6,))
    answer(deployment, second, lines=(4,), number=1)
    answer(deployment, first, lines=(1, 3))
    found = results_so_far(deployment, job_id)
    assert (found.is_complete, found.last_line, numbers(found)) == (False, 1, [1, 3, 4, 6])


def test_last_line_passes_shards_that_are_done(deployment: Deployment) -> None:
    job_id = job_of(deployment, "aaaaaa", shard_max_lines=2)
    complete(deployment, must_claim(deployment))
    assert results_so_far(deployment, job_id).last_line == 2
    complete_all(deployment, job_id)
    found = results_so_far(deployment, job_id)
    assert (found.is_complete, found.last_line, numbers(found)) == (False, 6, [1, 2, 3, 4, 5, 6])


def test_last_line_waits_for_every_model(deployment: Deployment) -> None:
    job_id = job_of(deployment, "abaabb", shard_max_lines=2)
    for _ in range(2):
        complete(deployment, must_claim(deployment, models=["a"]))
    found = results_so_far(deployment, job_id)
    assert (found.last_line, numbers(found)) == (1, [1, 3, 4])


@pytest.mark.parametrize("offset", range(8))
@pytest.mark.parametrize("is_published", [False, True])
def test_offset_gives_the_lines_behind_it(
    deployment: Deployment, offset: int, is_published: bool
) -> None:
    job_id = job_of(deployment, "aababa", shard_max_lines=2)
    complete_all(deployment, job_id, failed=(2, 5))
    if is_published:
        finalize(deployment, job_id)
    found = results_so_far(deployment, job_id, offset=offset)
    assert (found.is_complete, found.last_line) == (is_published, 6)
    assert numbers(found) == list(range(offset + 1, 7))


def test_a_reader_that_comes_back_misses_no_line(deployment: Deployment) -> None:
    job_id = job_of(deployment, "aaaaaa", shard_max_lines=3)
    seen: set[int] = set()
    offset = 0
    first, second = must_claim(deployment), must_claim(deployment)
    for held, lines, number in ((first, (2,), 0), (second, (4, 6), 0), (first, (1,), 1)):
        answer(deployment, held, lines=lines, number=number)
        found = results_so_far(deployment, job_id, offset=offset)
        seen.update(numbers(found))
        offset = found.last_line
    assert (offset, seen) == (2, {1, 2, 4, 6})
    with deployment.database.write() as session:
        jobs.cancel(session, deployment.clock, job_id)
    finalize(deployment, job_id)
    rest = results_so_far(deployment, job_id, offset=offset)
    assert (rest.is_complete, numbers(rest)) == (True, [3, 4, 5, 6])


def test_job_that_ends_while_it_is_read_goes_on_from_its_files(deployment: Deployment) -> None:
    job_id = job_of(deployment, "aaaa", shard_max_lines=2)
    complete_all(deployment, job_id)
    found = results_so_far(deployment, job_id)
    first = next(found.lines)
    finalize(deployment, job_id)
    assert json.loads(first)["custom_id"] == "1"
    assert numbers(found) == [2, 3, 4]


def test_blank_lines_of_the_input_are_no_gaps(deployment: Deployment) -> None:
    rows = [json.dumps(request_line(str(n))).encode() for n in (1, 2, 3)]
    data = b"\n\n" + rows[0] + b"\n\n" + rows[1] + b"\n" + rows[2]
    file = add_file(deployment, io.BytesIO(data), filename="in.jsonl", purpose="batch")
    job_id = create_job(deployment, file.id)
    tend(deployment)
    complete_all(deployment, job_id, failed=(5,))
    finalize(deployment, job_id)
    assert numbers(results_so_far(deployment, job_id)) == [1, 2, 3]
    assert numbers(results_so_far(deployment, job_id, offset=3)) == [2, 3]


def test_results_whose_file_is_deleted_are_not_found(deployment: Deployment) -> None:
    job_id = job_of(deployment, "a")
    complete_all(deployment, job_id)
    finalize(deployment, job_id)
    output = load_job(deployment, job_id).output_file_id
    assert output is not None
    delete_file(deployment, output)
    with pytest.raises(NotFoundError, match=output):
        results_so_far(deployment, job_id)
