"""What a command may ask of jobs, of the data here and of a server alike."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from batchjobs import catalogue
from batchjobs.client.base import Client, Order
from batchjobs.client.batch import Batch
from batchjobs.client.embedded import EmbeddedClient
from batchjobs.client.remote import RemoteClient
from batchjobs.deployment import Deployment
from batchjobs.errors import ConflictError, InvalidRequestError, NotFoundError, TooLargeError
from batchjobs.files import add_file, get_file
from tests.support.api import lines
from tests.support.cli import finished_job, waiting_job
from tests.support.engines import add_models
from tests.support.jobs import ENDPOINT, MODEL, answer, load_job, must_claim, open_deployment
from tests.support.served import WAYS, alive, serving

UNKNOWN = "batch_" + "0" * 32
DEADLINE_SECONDS = 20


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with open_deployment(tmp_path, poll_seconds=0.02, max_input_bytes=100_000) as opened:
        add_models(opened, MODEL)
        yield opened


@pytest.fixture(params=WAYS)
def client(request: pytest.FixtureRequest, deployment: Deployment) -> Iterator[Client]:
    if request.param == "embedded":
        yield EmbeddedClient(deployment)
        return
    with (
        alive(deployment, "worker-1"),
        serving(deployment) as url,
        RemoteClient(url) as opened,
    ):
        yield opened


def order(**changes: Any) -> Order:
    return Order(**{"filename": "in.jsonl", "endpoint": ENDPOINT, **changes})


def submit(client: Client, data: bytes | None = None, **changes: Any) -> Batch:
    return client.submit(io.BytesIO(lines(2) if data is None else data), order(**changes))


def until(client: Client, job_id: str, is_so: Callable[[Batch], bool]) -> Batch:
    """The job once it is so."""
    end = time.monotonic() + DEADLINE_SECONDS
    batch = client.batch(job_id)
    while not is_so(batch):
        assert time.monotonic() < end
        batch = client.wait(batch, seconds=1)
    return batch


def test_a_submitted_file_is_a_job_with_all_that_was_asked(
    client: Client, deployment: Deployment
) -> None:
    batch = submit(client, model=MODEL, window="48h", metadata={"a": "ü"}, seed=2**63 - 1)
    assert batch.status == "validating"
    assert (batch.endpoint, batch.metadata) == (ENDPOINT, {"a": "ü"})
    assert batch.wire["completion_window"] == "48h"
    job = load_job(deployment, batch.id)
    assert (job.model_override, job.seed) == (MODEL, 2**63 - 1)
    with deployment.database.read() as session:
        file = get_file(session, job.input_file_id)
    assert (file.filename, file.bytes) == ("in.jsonl", len(lines(2)))
    with client.open(file.id) as content:
        assert content.read() == lines(2)


@pytest.mark.parametrize("name", ['a "b"\r\n.jsonl', "ä\udcff.jsonl", "in\\put;.jsonl"])
def test_a_file_may_have_any_name(client: Client, name: str) -> None:
    assert submit(client, filename=name).status == "validating"


def test_an_unknown_model_makes_no_job(client: Client) -> None:
    with pytest.raises(NotFoundError, match=r"No model 'none' in the catalogue. It has: tiny"):
        submit(client, model="none")
    assert client.page(limit=1).batches == []


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"window": "soon"}, "completion_window"),
        ({"metadata": {"k": "v" * 513}}, "metadata.k"),
    ],
)
def test_an_order_that_cannot_be_makes_no_job(
    client: Client, changes: dict[str, Any], param: str
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        submit(client, **changes)
    assert refused.value.param == param
    assert client.page(limit=1).batches == []


def test_a_file_that_is_too_large_makes_no_job(client: Client) -> None:
    with pytest.raises(TooLargeError, match="BATCHJOBS_MAX_INPUT_BYTES"):
        submit(client, b"{}" * 50_001)
    assert client.page(limit=1).batches == []


@pytest.mark.parametrize("job_id", [UNKNOWN, "", ".", "..", "a/b", "a b?c#d%2e", "ü"])
def test_an_unknown_job_is_not_found(client: Client, job_id: str) -> None:
    for ask in (client.batch, client.cancel, client.retry):
        with pytest.raises(NotFoundError):
            ask(job_id)


def test_a_page_behind_an_unknown_job_is_not_found(client: Client) -> None:
    with pytest.raises(NotFoundError, match=UNKNOWN):
        client.page(limit=1, after=UNKNOWN)


def test_pages_have_the_newest_first_and_follow_each_other(
    client: Client, deployment: Deployment
) -> None:
    made = {waiting_job(deployment) for _ in range(3)}
    first = client.page(limit=2)
    rest = client.page(limit=2, after=first.batches[-1].id)
    assert (first.has_more, rest.has_more) == (True, False)
    found = [batch.id for batch in first.batches + rest.batches]
    assert len(found) == 3
    assert set(found) == made


def test_a_batch_says_how_far_the_job_is(client: Client, deployment: Deployment) -> None:
    job_id = waiting_job(deployment, 3)
    answer(deployment, must_claim(deployment), lines=[1])
    batch = client.batch(job_id)
    assert (batch.status, batch.is_terminal, list(batch.models)) == ("in_progress", False, [MODEL])
    assert (batch.finished_lines, batch.failed_lines, batch.total_lines) == (1, 0, 3)
    assert (batch.prompt_tokens, batch.completion_tokens) == (10, 5)


def test_waiting_in_vain_ends_with_the_job_as_it_was(
    client: Client, deployment: Deployment
) -> None:
    batch = client.batch(waiting_job(deployment))
    began = time.monotonic()
    assert client.wait(batch, seconds=1).wire == batch.wire
    assert time.monotonic() - began >= 1


def test_news_end_the_wait(client: Client, deployment: Deployment) -> None:
    batch = client.batch(waiting_job(deployment, 3))
    news = threading.Timer(0.2, lambda: answer(deployment, must_claim(deployment), lines=[1]))
    news.start()
    began = time.monotonic()
    assert client.wait(batch, seconds=30).finished_lines == 1
    assert time.monotonic() - began < 20
    news.join()


def test_a_bad_file_is_told_line_by_line(client: Client, deployment: Deployment) -> None:
    batch = submit(client, lines(1) + b"{}\n")
    if client.deployment is not None:
        from batchjobs.intake import validate

        validate(deployment, batch.id)
    failed = until(client, batch.id, lambda batch: batch.is_terminal)
    assert failed.status == "failed"
    assert [problem["line"] for problem in failed.problems] == [2]


def test_a_cancelled_job_that_nobody_works_on_has_ended(
    client: Client, deployment: Deployment
) -> None:
    batch = client.cancel(waiting_job(deployment, 3))
    assert batch.status == "cancelled"
    assert batch.error_file_id is not None
    with client.open(batch.error_file_id) as content:
        assert [json.loads(line)["custom_id"] for line in content] == ["line-1", "line-2", "line-3"]


def test_a_finished_job_cannot_be_cancelled(client: Client, deployment: Deployment) -> None:
    job_id = finished_job(deployment.settings.home)
    with pytest.raises(ConflictError, match="Cannot cancel a batch with status 'completed'"):
        client.cancel(job_id)


def test_lines_without_an_answer_are_retried(client: Client, deployment: Deployment) -> None:
    job_id = finished_job(deployment.settings.home, failed=(2,))
    again = client.retry(job_id)
    assert again.id != job_id
    with client.open(str(again.wire["input_file_id"])) as content:
        assert [json.loads(line)["custom_id"] for line in content] == ["line-2"]


def test_a_job_without_failed_lines_is_not_retried(client: Client, deployment: Deployment) -> None:
    with pytest.raises(ConflictError, match="no failed lines"):
        client.retry(finished_job(deployment.settings.home))


def test_a_file_is_a_stream_that_can_be_left(client: Client, deployment: Deployment) -> None:
    data = b"".join(b"%d\n" % number for number in range(1_000_000))
    file = add_file(deployment, io.BytesIO(data), filename="x", purpose="batch_output")
    with client.open(file.id) as content:
        assert [content.readline(), content.readline()] == [b"0\n", b"1\n"]
    with client.open(file.id) as content:
        assert b"".join(content) == data


def test_a_file_that_is_not_there_cannot_be_opened(client: Client) -> None:
    with pytest.raises(NotFoundError, match="file-none"):
        client.open("file-none")


def test_a_file_has_a_place(client: Client, deployment: Deployment) -> None:
    batch = client.batch(finished_job(deployment.settings.home))
    assert batch.output_file_id is not None
    assert batch.output_file_id in client.locate(batch.output_file_id)


def test_models_are_named_with_their_aliases(client: Client, deployment: Deployment) -> None:
    with deployment.database.write() as session:
        catalogue.add(
            session,
            deployment.clock,
            name="maker/big",
            source="/models/big",
            revision="1",
            aliases=["a", "z"],
        )
    named = [(model.name, model.aliases) for model in client.models()]
    assert named == [("maker/big", ("a", "z")), (MODEL, ())]
