from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from sqlalchemy import select

from batchjobs import catalogue, files, wire
from batchjobs.deployment import Deployment
from batchjobs.intake import validate
from batchjobs.models import Job, Shard
from batchjobs.queue import jobs, tallies
from batchjobs.settings import Settings
from batchjobs.states import JobState

URL = "/v1/chat/completions"
EMBEDDINGS = "/v1/embeddings"
BOM = b"\xef\xbb\xbf"

Open = Callable[..., Deployment]
Problem = tuple[int | None, str, str | None]


@pytest.fixture
def open_deployment(tmp_path: Path, database_url: str | None) -> Iterator[Open]:
    """Opens the deployment of this test with some settings; "small" and "other" are models."""
    opened: list[Deployment] = []

    def open_it(**settings: Any) -> Deployment:
        settings = {"home": tmp_path / "home", "database_url": database_url, **settings}
        deployment = Deployment.open(Settings(**settings))
        opened.append(deployment)
        with deployment.database.write() as session:
            for name, alias in (("small", "gpt-4o-mini"), ("other", "gpt-4o")):
                catalogue.add(
                    session,
                    deployment.clock,
                    name=name,
                    source=f"/{name}",
                    revision="r",
                    aliases=[alias],
                )
        return deployment

    yield open_it
    for deployment in opened:
        deployment.close()


@pytest.fixture
def deployment(open_deployment: Open) -> Deployment:
    return open_deployment()


def line(custom_id: object = "a", **changes: Any) -> dict[str, Any]:
    body = {"model": "small", "messages": [{"role": "user", "content": "Hi"}]}
    return {"custom_id": custom_id, "method": "POST", "url": URL, "body": body} | changes


def embedding(custom_id: str, given: object) -> dict[str, Any]:
    return line(custom_id, url=EMBEDDINGS, body={"model": "small", "input": given})


def with_body(custom_id: str, **changes: Any) -> dict[str, Any]:
    request = line(custom_id)
    body = request["body"] | changes
    return request | {"body": {key: value for key, value in body.items() if value is not None}}


def jsonl(*lines: dict[str, Any] | bytes) -> bytes:
    return b"".join((one if isinstance(one, bytes) else orjson.dumps(one)) + b"\n" for one in lines)


def submit(deployment: Deployment, data: bytes, *, purpose: str = "batch", **terms: Any) -> Job:
    """The job of a file with this content, after intake."""
    file = files.add_file(deployment, io.BytesIO(data), filename="in.jsonl", purpose=purpose)
    return submit_file(deployment, file.id, **terms)


def submit_file(deployment: Deployment, file_id: str, **terms: Any) -> Job:
    values: dict[str, Any] = {"endpoint": URL, "completion_window": "24h"} | terms
    with deployment.database.write() as session:
        job = jobs.create(
            session, deployment.clock, input_file_id=file_id, max_window_hours=24, **values
        )
    validate(deployment, job.id)
    return reload(deployment, job)


def reload(deployment: Deployment, job: Job) -> Job:
    with deployment.database.read() as session:
        return jobs.get(session, job.id)


def shards_of(deployment: Deployment, job: Job) -> list[Shard]:
    with deployment.database.read() as session:
        query = select(Shard).where(Shard.job_id == job.id).order_by(Shard.number)
        return list(session.scalars(query))


def problems_of(deployment: Deployment, job: Job) -> list[Problem]:
    return [(error["line"], error["code"], error["param"]) for error in errors_of(deployment, job)]


def errors_of(deployment: Deployment, job: Job) -> list[dict[str, Any]]:
    with deployment.database.read() as session:
        batch = wire.batch_object(job, tallies.tally(session, job), jobs.errors(session, job.id))
    assert (batch["status"] == "failed") == (batch["errors"] is not None)
    return [] if batch["errors"] is None else batch["errors"]["data"]


def test_a_good_file_starts_its_job(deployment: Deployment) -> None:
    data = jsonl(line("a"), line("b"))
    job = submit(deployment, data)
    assert job.status == JobState.IN_PROGRESS
    assert (job.total_lines, job.total_bytes) == (2, len(data))
    assert job.models == {"small": "small"}
    assert errors_of(deployment, job) == []
    (shard,) = shards_of(deployment, job)
    assert (shard.model, shard.first_line, shard.line_count) == ("small", 1, 2)
    assert (shard.byte_start, shard.byte_end) == (0, len(data))


def test_names_on_lines_are_translated_and_models_have_their_own_shards(
    deployment: Deployment,
) -> None:
    lines = [with_body(str(i), model=m) for i, m in enumerate(["gpt-4o", "small", "gpt-4o-mini"])]
    job = submit(deployment, jsonl(*lines))
    assert job.models == {"gpt-4o": "other", "small": "small", "gpt-4o-mini": "small"}
    shards = [(shard.model, shard.line_count) for shard in shards_of(deployment, job)]
    assert shards == [("other", 1), ("small", 2)]


def test_shards_are_cut_by_the_settings(open_deployment: Open) -> None:
    deployment = open_deployment(shard_max_lines=2)
    job = submit(deployment, jsonl(*(line(str(number)) for number in range(5))))
    assert [shard.line_count for shard in shards_of(deployment, job)] == [2, 2, 1]


def test_dressing_around_lines_is_no_problem(deployment: Deployment) -> None:
    first, second = (orjson.dumps(line(name)) for name in "ab")
    data = BOM + b"\n" + first + b"\r\n\r\n   \n" + second
    job = submit(deployment, data)
    assert (job.status, job.total_lines) == (JobState.IN_PROGRESS, 2)
    (shard,) = shards_of(deployment, job)
    assert (shard.first_line, shard.byte_end) == (2, len(data))


def test_the_override_takes_the_place_of_every_model(deployment: Deployment) -> None:
    data = jsonl(with_body("a", model="gpt-5"), with_body("b", model=None))
    job = submit(deployment, data, model_override="gpt-4o-mini")
    assert job.status == JobState.IN_PROGRESS
    assert job.models == {"gpt-4o-mini": "small"}


def test_an_unknown_override_fails_every_line(deployment: Deployment) -> None:
    job = submit(deployment, jsonl(line("a"), line("b")), model_override="gpt-5")
    assert problems_of(deployment, job) == [
        (1, "model_not_found", "body.model"),
        (2, "model_not_found", "body.model"),
    ]


def test_completions_are_checked_by_their_own_endpoint(deployment: Deployment) -> None:
    url = "/v1/completions"
    good = line("a", url=url, body={"model": "small", "prompt": "Once"})
    bad = line("b", url=url)
    job = submit(deployment, jsonl(good, bad), endpoint=url)
    assert problems_of(deployment, job) == [(2, "invalid_request", "body.prompt")]


def test_every_bad_line_is_listed_with_the_public_codes(deployment: Deployment) -> None:
    no_custom_id = line()
    del no_custom_id["custom_id"]
    cases: list[tuple[dict[str, Any] | bytes, str, str | None]] = [
        (b"{not json", "invalid_json_line", None),
        (b'{"custom_id": "\xff"}', "invalid_json_line", None),
        (b"[1]", "invalid_json_line", None),
        (no_custom_id, "missing_required_parameter", "custom_id"),
        (line("c4", method=None), "missing_required_parameter", "method"),
        (line("c5", method="GET"), "invalid_method", "method"),
        (line("c6", url=None), "missing_required_parameter", "url"),
        (line("c7", url="/v1/completions"), "invalid_url", "url"),
        (line("c8", body=None), "missing_required_parameter", "body"),
        (line("c9", body="text"), "invalid_type", "body"),
        (with_body("c10", model=None), "invalid_request", "body.model"),
        (with_body("c11", messages=None), "invalid_request", "body.messages"),
        (with_body("c12", stream=True), "streaming_unsupported", "body.stream"),
        (with_body("c13", model="gpt-5"), "model_not_found", "body.model"),
        (line("good"), "duplicate_custom_id", "custom_id"),
    ]
    job = submit(deployment, jsonl(line("good"), *(case for case, _, _ in cases)))
    assert job.status == JobState.FAILED
    assert problems_of(deployment, job) == [
        (number, code, param) for number, (_, code, param) in enumerate(cases, start=2)
    ]
    assert shards_of(deployment, job) == []


def test_the_messages_are_the_public_ones(deployment: Deployment) -> None:
    data = jsonl(
        b"{",
        line(None),
        line("c", url="/v1/x"),
        with_body("d", model="nonexistent-model-xyz"),
        with_body("e", stream=True),
        with_body("f", model=None),
        with_body("g", messages=None),
        line("g"),
    )
    job = submit(deployment, data)
    assert [error["message"] for error in errors_of(deployment, job)] == [
        "This line is not parseable as valid JSON.",
        "Missing required parameter: 'custom_id'.",
        "The URL provided for this request does not match the batch endpoint.",
        "The provided model 'nonexistent-model-xyz' is not supported by the Batch API.",
        "Chat Completions: Streaming is not supported in the Batch API.",
        "Model parameter is required.",
        "Messages parameter is required.",
        "The custom ID for this request is a duplicate of the custom ID in another request"
        " (line 7).",
    ]


def test_line_numbers_count_blank_lines(deployment: Deployment) -> None:
    job = submit(deployment, b"\n\n" + jsonl(line("a")) + b"\n{\n")
    assert problems_of(deployment, job) == [(5, "invalid_json_line", None)]


def test_a_line_has_one_problem_even_if_its_id_is_repeated(deployment: Deployment) -> None:
    job = submit(deployment, jsonl(line("a"), line("a", method="GET"), line("a")))
    assert problems_of(deployment, job) == [
        (2, "invalid_method", "method"),
        (3, "duplicate_custom_id", "custom_id"),
    ]


def test_an_id_used_on_a_bad_line_is_used(deployment: Deployment) -> None:
    job = submit(deployment, jsonl(line("a", method="GET"), line("a")))
    assert problems_of(deployment, job) == [
        (1, "invalid_method", "method"),
        (2, "duplicate_custom_id", "custom_id"),
    ]


def test_a_line_that_is_too_long_fails_alone_in_the_list(open_deployment: Open) -> None:
    deployment = open_deployment(max_line_bytes=1024)
    long = with_body("b", messages=[{"role": "user", "content": "x" * 2000}])
    job = submit(deployment, jsonl(line("a"), long, line("c")))
    (error,) = errors_of(deployment, job)
    assert (error["line"], error["code"]) == (2, "line_too_long")
    assert error["message"] == "This line is longer than 1,024 bytes."


def test_bad_parameters_are_left_to_the_run(deployment: Deployment) -> None:
    job = submit(deployment, jsonl(with_body("a", temperature=99, no_such_thing=1)))
    assert job.status == JobState.IN_PROGRESS


@pytest.mark.parametrize("data", [b"", b"\n", BOM, b" \r\n\n"])
def test_a_file_without_requests_is_empty(deployment: Deployment, data: bytes) -> None:
    job = submit(deployment, data)
    (error,) = errors_of(deployment, job)
    assert error == {
        "code": "empty_file",
        "line": None,
        "message": "The input file is empty."
        " Please ensure that the batch contains at least one request.",
        "param": None,
    }


def test_one_model_a_file_can_be_asked_for(open_deployment: Open) -> None:
    deployment = open_deployment(allow_mixed_models=False)
    names = ["small", "gpt-4o-mini", "other", "small"]
    lines = [with_body(str(number), model=name) for number, name in enumerate(names)]
    job = submit(deployment, jsonl(*lines))
    assert problems_of(deployment, job) == [(3, "mismatched_model", "body.model")]


def test_as_many_requests_as_allowed_pass_and_one_more_does_not(open_deployment: Open) -> None:
    deployment = open_deployment(max_requests_per_batch=3)
    lines = [line(str(number)) for number in range(4)]
    assert submit(deployment, jsonl(*lines[:3]) + b"\n").status == JobState.IN_PROGRESS
    job = submit(deployment, jsonl(*lines))
    (error,) = errors_of(deployment, job)
    assert (error["line"], error["code"]) == (None, "too_many_tasks")
    assert "more than 3 requests" in error["message"]


def test_as_many_inputs_to_embed_as_allowed_pass_and_one_more_does_not(
    open_deployment: Open,
) -> None:
    deployment = open_deployment(max_requests_per_batch=6, shard_max_lines=4)
    lines = [embedding("a", ["x"] * 3), embedding("b", [1, 2, 3, 4]), embedding("c", [[1], [2]])]
    job = submit(deployment, jsonl(*lines), endpoint=EMBEDDINGS)
    assert job.status == JobState.IN_PROGRESS
    assert [shard.line_count for shard in shards_of(deployment, job)] == [2, 1]
    job = submit(deployment, jsonl(*lines, embedding("d", "y")), endpoint=EMBEDDINGS)
    (error,) = errors_of(deployment, job)
    assert (error["line"], error["code"]) == (None, "too_many_tasks")
    assert "more than 6 inputs to embed" in error["message"]


def test_as_many_bytes_as_allowed_pass_and_one_more_does_not(open_deployment: Open) -> None:
    data = jsonl(line("a"))
    deployment = open_deployment(max_input_bytes=len(data))
    assert submit(deployment, data).status == JobState.IN_PROGRESS
    job = submit(deployment, data + b"\n")
    assert problems_of(deployment, job) == [(None, "file_too_large", None)]


@pytest.mark.parametrize("bad", ["syntax", "repeated"])
def test_a_cut_list_says_that_there_is_more(open_deployment: Open, bad: str) -> None:
    deployment = open_deployment(max_listed_errors=3)
    line_of: dict[str, dict[str, Any] | bytes] = {"syntax": b"{", "repeated": line("a")}
    job = submit(deployment, jsonl(line("a"), *[line_of[bad]] * 3))
    assert [number for number, _, _ in problems_of(deployment, job)] == [2, 3, 4]
    job = submit(deployment, jsonl(line("a"), *[line_of[bad]] * 4))
    assert [number for number, _, _ in problems_of(deployment, job)] == [2, 3, 4, None]
    assert errors_of(deployment, job)[-1]["code"] == "too_many_errors"


def test_a_cut_list_has_the_first_bad_lines_of_either_kind(open_deployment: Open) -> None:
    deployment = open_deployment(max_listed_errors=3)
    lines: list[dict[str, Any] | bytes] = [line("a"), b"{"] * 3
    job = submit(deployment, jsonl(*lines))
    assert [number for number, _, _ in problems_of(deployment, job)] == [2, 3, 4, None]


def test_a_missing_file_fails_the_job(deployment: Deployment) -> None:
    job = submit_file(deployment, "file-0")
    (error,) = errors_of(deployment, job)
    assert (error["line"], error["code"], error["param"]) == (None, "invalid_request", "file_id")
    assert error["message"].startswith("Cannot find file file-0, or ")


def test_a_file_whose_object_is_gone_is_missing(deployment: Deployment) -> None:
    data = io.BytesIO(jsonl(line("a")))
    file = files.add_file(deployment, data, filename="in.jsonl", purpose="batch")
    deployment.store.delete(file.key)
    job = submit_file(deployment, file.id)
    assert problems_of(deployment, job) == [(None, "invalid_request", "file_id")]


def test_a_file_of_another_purpose_is_refused(deployment: Deployment) -> None:
    job = submit(deployment, jsonl(line("a")), purpose="batch_output")
    assert problems_of(deployment, job) == [(None, "invalid_request", "file_id")]


def test_an_unknown_endpoint_fails_the_job(deployment: Deployment) -> None:
    job = submit(deployment, jsonl(line("a")), endpoint="/v1/images")
    (error,) = errors_of(deployment, job)
    assert (error["code"], error["param"]) == ("invalid_value", "endpoint")
    assert error["message"] == (
        "Invalid value: '/v1/images'."
        " Supported values are: '/v1/chat/completions', '/v1/completions', '/v1/embeddings', and"
        " '/v1/responses'."
    )


def test_validating_again_changes_nothing(deployment: Deployment) -> None:
    good, bad = submit(deployment, jsonl(line("a"))), submit(deployment, b"{\n")
    for job in (good, bad):
        validate(deployment, job.id)
        assert reload(deployment, job).status == job.status
    assert len(shards_of(deployment, good)) == 1
    assert len(errors_of(deployment, bad)) == 1


def test_a_cancelled_job_is_not_started(deployment: Deployment) -> None:
    data = io.BytesIO(jsonl(line("a")))
    file = files.add_file(deployment, data, filename="in.jsonl", purpose="batch")
    with deployment.database.write() as session:
        job = jobs.create(
            session,
            deployment.clock,
            input_file_id=file.id,
            endpoint=URL,
            completion_window="24h",
            max_window_hours=24,
        )
        jobs.cancel(session, deployment.clock, job.id)
    validate(deployment, job.id)
    assert reload(deployment, job).status == JobState.CANCELLING
    assert shards_of(deployment, job) == []
