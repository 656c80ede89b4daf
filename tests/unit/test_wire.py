from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from batchjobs.errors import InvalidRequestError, ModelError
from batchjobs.models import File, Job, JobError
from batchjobs.outlook import Outlook
from batchjobs.queue.tallies import Tally
from batchjobs.states import JobState
from batchjobs.wire import (
    batch_object,
    failure_line,
    file_object,
    list_page,
    success_line,
    unrun_line,
)

CREATED = datetime(2026, 1, 2, 3, 4, 5, 999_999, tzinfo=UTC)
CREATED_SECONDS = 1767323045
TALLY = Tally(
    completed=3,
    failed=1,
    prompt_tokens=40,
    cached_tokens=8,
    completion_tokens=20,
    reasoning_tokens=7,
    input_bytes=99,
)


def job(**changes: Any) -> Job:
    values: dict[str, Any] = {
        "id": "batch_1",
        "status": JobState.VALIDATING,
        "endpoint": "/v1/completions",
        "completion_window": "24h",
        "input_file_id": "file-1",
        "models": {},
        "priority": 0,
        "created_at": CREATED,
        "expires_at": CREATED + timedelta(hours=24),
        "total_lines": 0,
    }
    return Job(**values | changes)


def test_a_fresh_batch_has_every_key_and_nothing_known() -> None:
    assert batch_object(job(), Tally(), []) == {
        "id": "batch_1",
        "object": "batch",
        "endpoint": "/v1/completions",
        "model": None,
        "errors": None,
        "input_file_id": "file-1",
        "completion_window": "24h",
        "status": "validating",
        "output_file_id": None,
        "error_file_id": None,
        "created_at": CREATED_SECONDS,
        "in_progress_at": None,
        "expires_at": CREATED_SECONDS + 86400,
        "finalizing_at": None,
        "completed_at": None,
        "failed_at": None,
        "expired_at": None,
        "cancelling_at": None,
        "cancelled_at": None,
        "request_counts": {"total": 0, "completed": 0, "failed": 0},
        "usage": None,
        "metadata": None,
        "deadline": CREATED_SECONDS + 86400,
        "eta": None,
        "at_risk": False,
        "notice": None,
        "models": [],
        "cached_tokens": 0,
        "priority": 0,
        "system_fingerprints": None,
    }


def test_a_running_batch_counts_what_is_done() -> None:
    running = job(
        status=JobState.IN_PROGRESS,
        in_progress_at=CREATED,
        total_lines=10,
        models={"gpt": "small"},
        job_metadata={"k": "v"},
    )
    wire = batch_object(running, TALLY, [])
    assert wire["request_counts"] == {"total": 10, "completed": 3, "failed": 1}
    assert wire["usage"] == {
        "input_tokens": 40,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 7},
        "total_tokens": 60,
    }
    assert wire["cached_tokens"] == 8
    assert wire["model"] == "gpt"
    assert wire["metadata"] == {"k": "v"}


OUTLOOK = Outlook(eta=CREATED + timedelta(hours=1), at_risk=True, notice="Nobody works.")


def test_what_is_expected_of_a_running_batch_is_told() -> None:
    wire = batch_object(job(status=JobState.IN_PROGRESS), TALLY, [], OUTLOOK)
    assert wire["eta"] == CREATED_SECONDS + 3601  # never before it is expected
    assert (wire["at_risk"], wire["notice"]) == (True, "Nobody works.")


@pytest.mark.parametrize("status", sorted(set(JobState) - {"validating", "in_progress"}))
def test_nothing_is_expected_of_a_batch_that_ends_or_has_ended(status: JobState) -> None:
    wire = batch_object(job(status=status), TALLY, [], OUTLOOK)
    assert (wire["eta"], wire["at_risk"], wire["notice"]) == (None, False, None)


def test_a_batch_of_several_models_names_none() -> None:
    assert batch_object(job(models={"a": "x", "b": "x"}), Tally(), [])["model"] is None


def test_a_failed_batch_lists_its_errors() -> None:
    errors = [
        JobError(number=0, line=4, code="invalid_url", message="Wrong.", param="url"),
        JobError(number=1, line=None, code="too_many_tasks", message="Many.", param=None),
    ]
    assert batch_object(job(status=JobState.FAILED), Tally(), errors)["errors"] == {
        "object": "list",
        "data": [
            {"code": "invalid_url", "line": 4, "message": "Wrong.", "param": "url"},
            {"code": "too_many_tasks", "line": None, "message": "Many.", "param": None},
        ],
    }


@pytest.mark.parametrize(
    "name",
    [
        "in_progress_at",
        "finalizing_at",
        "completed_at",
        "failed_at",
        "expired_at",
        "cancelling_at",
        "cancelled_at",
    ],
)
def test_each_timestamp_is_whole_seconds(name: str) -> None:
    assert batch_object(job(**{name: CREATED}), Tally(), [])[name] == CREATED_SECONDS


def test_a_file_is_processed_at_once() -> None:
    file = File(
        id="file-1",
        purpose="batch_output",
        filename="batch_1_output.jsonl",
        bytes=12,
        created_at=CREATED,
    )
    assert file_object(file) == {
        "id": "file-1",
        "object": "file",
        "bytes": 12,
        "created_at": CREATED_SECONDS,
        "expires_at": None,
        "filename": "batch_1_output.jsonl",
        "purpose": "batch_output",
        "status": "processed",
        "status_details": None,
    }


def test_a_page_has_its_first_and_last_id() -> None:
    data = [{"id": "a"}, {"id": "b"}, {"id": "c"}]
    assert list_page(data, has_more=True) == {
        "object": "list",
        "data": data,
        "first_id": "a",
        "last_id": "c",
        "has_more": True,
    }


def test_an_empty_page_has_no_ids() -> None:
    page = list_page([], has_more=False)
    assert (page["data"], page["first_id"], page["last_id"]) == ([], None, None)


def test_a_success_line_carries_the_body() -> None:
    assert success_line("mine", "d1", {"x": 1}) == {
        "id": "batch_req_d1",
        "custom_id": "mine",
        "response": {"status_code": 200, "request_id": "req_d1", "body": {"x": 1}},
        "error": None,
    }


def test_a_failure_line_is_an_http_answer_with_an_error_body() -> None:
    error = InvalidRequestError("Too long.", param="messages", code="context_length_exceeded")
    assert failure_line("mine", "d1", error) == {
        "id": "batch_req_d1",
        "custom_id": "mine",
        "response": {
            "status_code": 400,
            "request_id": "req_d1",
            "body": {
                "error": {
                    "message": "Too long.",
                    "type": "invalid_request_error",
                    "param": "messages",
                    "code": "context_length_exceeded",
                }
            },
        },
        "error": None,
    }


def test_a_fault_of_ours_is_a_server_error() -> None:
    response = failure_line("mine", "d1", ModelError("Broken."))["response"]
    assert response["status_code"] == 500
    assert response["body"]["error"]["type"] == "server_error"


def test_an_unrun_line_has_no_response() -> None:
    assert unrun_line("mine", "d1", "batch_expired", "Too late.") == {
        "id": "batch_req_d1",
        "custom_id": "mine",
        "response": None,
        "error": {"code": "batch_expired", "message": "Too late."},
    }
