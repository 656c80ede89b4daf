"""The unmodified `openai` package against a server in a process of its own."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from openai import OpenAI
from openai.types import Batch

from batchjobs.deployment import Deployment
from batchjobs.settings import Settings
from batchjobs.worker.runner import run_jobs
from batchjobs.worker.stop import StopSignal
from tests.support.api import jsonl, lines, running_server
from tests.support.engines import FakeEngines, add_models
from tests.support.jobs import ENDPOINT, MODEL, request_line

pytestmark = pytest.mark.clients

ENDED = {"completed", "failed", "cancelled", "expired"}
MAX_BYTES = 2_000_000
ONE_LINE = lines(1)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def deployment(home: Path) -> Iterator[Deployment]:
    """The worker's side of the server's data."""
    with Deployment.open(Settings.load(home=home)) as opened:
        add_models(opened, MODEL)
        yield opened


@pytest.fixture(scope="module")
def client(home: Path, deployment: Deployment) -> Iterator[OpenAI]:
    settings = {"poll_seconds": 0.1, "max_input_bytes": MAX_BYTES}
    with (
        running_server(home, **settings) as server,
        OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as opened,
    ):
        yield opened


def work(deployment: Deployment) -> None:
    run_jobs(deployment, engines=FakeEngines(), stop=StopSignal(grace_seconds=60, forced_exit=9))


def create(client: OpenAI, data: bytes = ONE_LINE) -> Batch:
    file = client.files.create(file=data, purpose="batch")
    return client.batches.create(input_file_id=file.id, endpoint=ENDPOINT, completion_window="24h")


def wait(client: OpenAI, batch: Batch, statuses: set[str]) -> Batch:
    """As a client polls, but without its pauses."""
    seconds = 5 if statuses == ENDED else 0
    while batch.status not in statuses:
        batch = client.batches.retrieve(batch.id, extra_query={"wait": seconds})
    return batch


def test_a_batch_from_upload_to_results(client: OpenAI, deployment: Deployment) -> None:
    requests = [request_line(f"ask-{number}") for number in range(20)]
    requests[3]["body"]["temperature"] = 9
    file = client.files.create(file=("asks.jsonl", jsonl(*requests)), purpose="batch")
    assert client.files.wait_for_processing(file.id).status == "processed"
    batch = client.batches.create(
        input_file_id=file.id,
        endpoint=ENDPOINT,
        completion_window="24h",
        metadata={"name": "first"},
    )
    assert batch.request_counts is not None
    wait(client, batch, {"in_progress"})
    work(deployment)
    batch = wait(client, batch, ENDED)
    assert (batch.status, batch.metadata) == ("completed", {"name": "first"})
    assert batch.request_counts is not None
    assert (batch.request_counts.completed, batch.request_counts.failed) == (19, 1)
    assert batch.output_file_id is not None
    assert batch.error_file_id is not None
    rows = [json.loads(row) for row in client.files.content(batch.output_file_id).text.splitlines()]
    assert [row["custom_id"] for row in rows] == [f"ask-{n}" for n in range(20) if n != 3]
    # Made-up answers may be empty.
    texts = [row["response"]["body"]["choices"][0]["message"]["content"] for row in rows]
    assert all(isinstance(text, str) for text in texts)
    [failed] = map(json.loads, client.files.content(batch.error_file_id).text.splitlines())
    assert failed["response"]["status_code"] == 400
    assert batch.model_extra is not None
    assert batch.model_extra["system_fingerprints"] == ["fp_fake"]
    assert batch.usage is not None
    assert batch.usage.total_tokens == sum(
        row["response"]["body"]["usage"]["total_tokens"] for row in rows
    )


def test_content_is_streamed(client: OpenAI, tmp_path: Path) -> None:
    data = lines(5000)
    file = client.files.create(file=io.BytesIO(data), purpose="batch")
    assert (file.filename, file.bytes) == ("upload", len(data))
    with client.files.with_streaming_response.content(file.id) as response:
        response.stream_to_file(tmp_path / "copy.jsonl")
    assert (tmp_path / "copy.jsonl").read_bytes() == data


def test_files_are_listed_page_by_page_retrieved_and_deleted(client: OpenAI) -> None:
    made = [
        client.files.create(
            file=b"x",
            purpose="user_data",
            expires_after={"anchor": "created_at", "seconds": 3600},
        )
        for _ in range(5)
    ]
    assert made[0].expires_at == made[0].created_at + 3600
    listed = list(client.files.list(purpose="user_data", limit=2, order="asc"))
    assert [file.id for file in listed] == [file.id for file in made]
    for file in made:
        assert client.files.retrieve(file.id) == file
        assert client.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError, match="No such File object"):
        client.files.retrieve(made[0].id)
    assert list(client.files.list(purpose="user_data")) == []


def test_batches_are_listed_page_by_page(client: OpenAI) -> None:
    made = [create(client).id for _ in range(5)]
    listed = [batch.id for batch in client.batches.list(limit=2)]
    assert listed[:5] == made[::-1]
    assert len(listed) == len(set(listed))


def test_a_bad_file_fails_its_batch_line_by_line(client: OpenAI) -> None:
    bad = [request_line("a"), {"custom_id": "b"}, request_line("c", model="none")]
    batch = wait(client, create(client, jsonl(*bad)), ENDED)
    assert batch.status == "failed"
    assert batch.errors is not None
    assert [(error.line, error.code) for error in batch.errors.data or ()] == [
        (2, "missing_required_parameter"),
        (3, "model_not_found"),
    ]


def test_a_cancelled_batch_ends_without_a_worker(client: OpenAI) -> None:
    batch = client.batches.cancel(create(client, lines(3)).id)
    assert (batch.status, batch.cancelling_at is not None) == ("cancelling", True)
    batch = wait(client, batch, ENDED)
    assert batch.status == "cancelled"
    with pytest.raises(openai.ConflictError, match="Cannot cancel a batch with status 'failed'"):
        client.batches.cancel(wait(client, create(client, b"{}\n"), ENDED).id)


def test_models_are_listed_and_retrieved(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).object == "model"


def test_too_large_a_file_is_told_so(client: OpenAI) -> None:
    with pytest.raises(openai.APIStatusError, match="is too large") as refused:
        client.files.create(file=b"{}\n" * MAX_BYTES, purpose="batch")
    assert refused.value.status_code == 413
    assert client.models.list().data


def test_what_is_wrong_is_told_by_name(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.batches.create(
            input_file_id="file-1",
            endpoint="/v1/moderations",
            completion_window="24h",
        )
    assert (refused.value.param, refused.value.code) == ("endpoint", "invalid_value")
    assert refused.value.request_id is not None
