"""Why lines failed, as a summary tells it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchjobs.cli import answers
from batchjobs.cli.answers import Answer, first_reasons
from batchjobs.client.embedded import EmbeddedClient
from batchjobs.deployment import Deployment
from batchjobs.worker.runner import run_jobs
from batchjobs.worker.stop import StopSignal
from tests.support.engines import FakeEngines, add_models
from tests.support.jobs import MODEL, open_deployment, request_line, start_job

FAULTS: list[dict[str, Any]] = [
    {"max_tokens": 10_000},
    {"max_tokens": 20_000},
    {"max_tokens": 30_000},
    {"temperature": 3},
    {"temperature": 4},
    {"top_p": "1"},
    {"n": "1"},
    {"seed": "1"},
]

CALL = {"type": "function", "function": {"name": "look_up", "arguments": '{"city": "Rome"}'}}
CALL_TEXT = 'look_up({"city": "Rome"})'


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with open_deployment(tmp_path) as opened:
        add_models(opened, MODEL)
        yield opened


def reasons(deployment: Deployment) -> list[str]:
    requests = [request_line(f"line-{number}") for number in range(len(FAULTS))]
    for request, fault in zip(requests, FAULTS, strict=True):
        request["body"] |= fault
    job_id = start_job(deployment, requests)
    stop = StopSignal(grace_seconds=60, forced_exit=9)
    run_jobs(deployment, job_id=job_id, engines=FakeEngines(), stop=stop)
    client = EmbeddedClient(deployment)
    return first_reasons(client, client.batch(job_id))


def test_only_errors_that_differ_in_their_numbers_are_counted_as_one(
    deployment: Deployment,
) -> None:
    first, second, third, rest = reasons(deployment)
    assert first.startswith("3 × This model's maximum context length is ")
    assert second.startswith("2 × Invalid 'temperature': ")
    assert third.startswith("1 × Invalid type for 'top_p': ")
    assert rest == "2 × for 2 other reasons"


def test_counts_of_a_part_say_that_they_are(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "_LINES_LOOKED_AT", 4)
    head, first, second = reasons(deployment)
    assert head == "of the first 4 lines that failed:"
    assert (first[:3], second[:3]) == ("3 ×", "1 ×")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"choices": [{"text": "one"}, {"text": "two"}]}, "one ┃ two"),
        ({"choices": [{"message": {"content": None, "tool_calls": [CALL]}}]}, CALL_TEXT),
        ({"error": None, "output": [{"content": [{"text": "a response"}]}]}, "a response"),
        ({"data": [{"embedding": [0.5, 1.0]}]}, "[2 numbers: 0.5, 1, …]"),
        ({"error": {"message": "No.", "code": None}}, "No."),
    ],
)
def test_an_answer_of_any_endpoint_can_be_read(body: dict[str, Any], text: str) -> None:
    response = {"status_code": 200, "body": body}
    answer = Answer.of({"custom_id": "a", "error": None, "response": response})
    assert (answer.status, answer.text) == ("200", text)
