from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

import pytest
from starlette.testclient import TestClient

from batchjobs.deployment import Deployment
from batchjobs.finalize import finalize
from batchjobs.worker.tending import tend
from tests.support.api import create, jsonl, lines, upload
from tests.support.jobs import START, clock_of, complete_all, request_line

START_SECONDS = int(START.timestamp())
LINE = request_line("a")
ONE_LINE = ("in.jsonl", lines(1))


def post(client: TestClient, file: Any = ONE_LINE, **fields: Any) -> Any:
    return client.post("/v1/files", data={"purpose": "batch", **fields}, files={"file": file})


def error_of(answer: Any) -> dict[str, Any]:
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    return error


def test_uploaded_file_is_a_processed_file(client: TestClient) -> None:
    file = upload(client, lines(2))
    assert file.pop("id").startswith("file-")
    assert file == {
        "object": "file",
        "bytes": len(lines(2)),
        "created_at": START_SECONDS,
        "expires_at": None,
        "filename": "in.jsonl",
        "purpose": "batch",
        "status": "processed",
        "status_details": None,
    }


def test_uploaded_file_reads_back(client: TestClient) -> None:
    data = lines(3)
    file = upload(client, data)
    assert client.get(f"/v1/files/{file['id']}").json() == file
    answer = client.get(f"/v1/files/{file['id']}/content")
    assert (answer.status_code, answer.content) == (200, data)
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-length"] == str(len(data))


def test_file_without_a_name_is_called_upload(client: TestClient) -> None:
    body = (
        b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\n{}\n\r\n'
        b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b--\r\n'
    )
    headers = {"content-type": "multipart/form-data; boundary=b"}
    answer = client.post("/v1/files", content=body, headers=headers)
    assert (answer.status_code, answer.json()["filename"]) == (200, "upload")


def test_filename_of_any_script_is_kept_and_given_back(client: TestClient) -> None:
    answer = post(client, ("Prüfung 🙂.txt", lines(1)))
    assert answer.json()["filename"] == "Prüfung 🙂.txt"
    content = client.get(f"/v1/files/{answer.json()['id']}/content")
    assert "Pr%C3%BCfung%20" in content.headers["content-disposition"]


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf" + lines(1),
        b"\xef\xbb\xbf\n" + lines(1),
        b"\n \r\n" + lines(1),
        lines(1).removesuffix(b"\n"),
        lines(1) + b"not json\n",
        b'{"custom_id": "' + b"x" * (1 << 13) + b'"}\n',
    ],
    ids=["bom", "bom-blank", "blank-lines", "no-line-feed", "bad-second-line", "long-first-line"],
)
def test_file_is_taken_if_its_first_line_is_an_object(
    deployment: Deployment, client: TestClient, data: bytes
) -> None:
    file = upload(client, data)
    assert client.get(f"/v1/files/{file['id']}/content").content == data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "Invalid file format for Batch API. Must be .jsonl. The file is empty."),
        (b" \n\r\n\n", "Invalid file format for Batch API. Must be .jsonl. The file is empty."),
        (
            b"a,b\n1,2\n",
            "Invalid file format for Batch API. Must be .jsonl. Its first line:"
            " This line is not parseable as valid JSON.",
        ),
        (
            b"[1]\n",
            "Invalid file format for Batch API. Must be .jsonl. Its first line:"
            " This line must be a JSON object, but it is an array.",
        ),
        ("{}\n".encode("utf-16"), "Invalid file for Batch API. Must be utf-8 encoded."),
    ],
    ids=["empty", "blank", "csv", "array", "utf-16"],
)
def test_file_of_another_kind_is_refused_and_leaves_nothing(
    deployment: Deployment, client: TestClient, data: bytes, message: str
) -> None:
    answer = post(client, ("in.jsonl", data))
    assert answer.status_code == 400
    assert (error_of(answer)["message"], error_of(answer)["param"]) == (message, "file")
    assert list(deployment.store.list("")) == []


def test_files_of_other_purposes_may_have_any_content(client: TestClient) -> None:
    assert upload(client, b"\x00\xff", purpose="user_data")["purpose"] == "user_data"


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"purpose": "bulk"}, "purpose", "invalid_value"),
        ({"purpse": "batch"}, "purpse", "unknown_parameter"),
        (
            {"expires_after[anchor]": "now", "expires_after[seconds]": "3600"},
            "expires_after.anchor",
            "invalid_value",
        ),
        (
            {"expires_after[anchor]": "created_at", "expires_after[seconds]": "soon"},
            "expires_after.seconds",
            "invalid_type",
        ),
        (
            {"expires_after[anchor]": "created_at", "expires_after[seconds]": "3599"},
            "expires_after.seconds",
            "integer_below_min_value",
        ),
        (
            {"expires_after[anchor]": "created_at", "expires_after[seconds]": "2592001"},
            "expires_after.seconds",
            "integer_above_max_value",
        ),
        (
            {"expires_after[seconds]": "3600"},
            "expires_after.anchor",
            "missing_required_parameter",
        ),
        (
            {"expires_after[anchor]": "created_at"},
            "expires_after.seconds",
            "missing_required_parameter",
        ),
    ],
)
def test_wrong_field_is_refused_and_leaves_nothing(
    deployment: Deployment, client: TestClient, fields: dict[str, str], param: str, code: str
) -> None:
    answer = post(client, **fields)
    assert answer.status_code == 400
    assert (error_of(answer)["param"], error_of(answer)["code"]) == (param, code)
    assert list(deployment.store.list("")) == []


def test_missing_parts_of_an_upload_are_named(client: TestClient) -> None:
    no_file = client.post("/v1/files", files={"purpose": (None, "batch")})
    no_purpose = client.post("/v1/files", files={"file": ("in.jsonl", lines(1))})
    assert [error_of(answer)["param"] for answer in (no_file, no_purpose)] == ["file", "purpose"]


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json", b"{}"),
        ("multipart/form-data", b"--b"),
        ("multipart/form-data; boundary=b", b"nothing of that kind"),
        ("multipart/form-data; boundary=b", b""),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\n{}\n',
        ),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\n' + b"x" * 5000,
        ),
    ],
    ids=["json", "no-boundary", "no-multipart", "empty", "cut-off", "giant-field"],
)
def test_unusable_body_is_refused_and_leaves_nothing(
    deployment: Deployment, client: TestClient, content_type: str, body: bytes
) -> None:
    answer = client.post("/v1/files", content=body, headers={"content-type": content_type})
    assert answer.status_code == 400
    assert error_of(answer)["message"]
    assert list(deployment.store.list("")) == []


def test_second_file_is_refused(deployment: Deployment, client: TestClient) -> None:
    two = [("file", ("a.jsonl", lines(1))), ("file", ("b.jsonl", lines(1)))]
    answer = client.post("/v1/files", data={"purpose": "batch"}, files=two)
    assert (answer.status_code, "more than one file" in answer.text) == (400, True)
    assert list(deployment.store.list("")) == []


def test_file_at_the_limit_is_taken_and_one_byte_more_is_413(
    deployment: Deployment, client: TestClient
) -> None:
    most = deployment.settings.max_input_bytes
    data = lines(1).ljust(most)
    kept = upload(client, data)
    answer = post(client, ("big.jsonl", data + b" "))
    assert (answer.status_code, error_of(answer)["code"]) == (413, "file_too_large")
    assert list(deployment.store.list("")) == [f"files/{kept['id']}.jsonl"]


def test_expiry_is_counted_from_creation(client: TestClient) -> None:
    fields = {"expires_after[anchor]": "created_at", "expires_after[seconds]": "7200"}
    assert upload(client, **fields)["expires_at"] == START_SECONDS + 7200


@pytest.mark.parametrize("file_id", ["file-" + "0" * 32, "file-none", "batch_1", "a%00b", "é"])
@pytest.mark.parametrize("route", ["", "/content"])
def test_unknown_file_is_404(client: TestClient, file_id: str, route: str) -> None:
    answer = client.get(f"/v1/files/{file_id}{route}")
    assert answer.status_code == 404
    assert error_of(answer)["message"].startswith("No such File object: ")


def test_deleted_file_is_gone_from_everywhere(deployment: Deployment, client: TestClient) -> None:
    file_id = upload(client)["id"]
    answer = client.delete(f"/v1/files/{file_id}")
    assert answer.json() == {"id": file_id, "object": "file", "deleted": True}
    assert list(deployment.store.list("")) == []
    assert client.get("/v1/files").json()["data"] == []
    assert client.delete(f"/v1/files/{file_id}").status_code == 404


def test_input_of_a_job_can_be_deleted_when_the_job_has_ended(
    deployment: Deployment, client: TestClient
) -> None:
    file_id = upload(client)["id"]
    batch_id = create(client, file_id)["id"]
    for _ in range(2):  # while it is validating, and while it runs
        refused = client.delete(f"/v1/files/{file_id}")
        assert refused.status_code == 409
        assert batch_id in error_of(refused)["message"]
        tend(deployment)
    complete_all(deployment, batch_id)
    finalize(deployment, batch_id)
    assert client.delete(f"/v1/files/{file_id}").status_code == 200


@pytest.mark.parametrize(
    ("asked", "status", "expected", "content_range"),
    [
        ("bytes=0-3", 206, b"0123", "bytes 0-3/10"),
        ("bytes=4-", 206, b"456789", "bytes 4-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=-30", 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=8-99", 206, b"89", "bytes 8-9/10"),
        ("bytes=9-9", 206, b"9", "bytes 9-9/10"),
        ("bytes=0-1,4-5", 200, b"0123456789", None),
        ("bytes=5-4", 200, b"0123456789", None),
        ("lines=1-2", 200, b"0123456789", None),
    ],
)
def test_content_is_given_in_ranges(
    client: TestClient, asked: str, status: int, expected: bytes, content_range: str | None
) -> None:
    file_id = upload(client, b"0123456789", purpose="user_data")["id"]
    answer = client.get(f"/v1/files/{file_id}/content", headers={"range": asked})
    assert (answer.status_code, answer.content) == (status, expected)
    assert answer.headers.get("content-range") == content_range
    assert answer.headers["content-length"] == str(len(expected))


@pytest.mark.parametrize("asked", ["bytes=10-", "bytes=99-100", "bytes=-0"])
def test_range_behind_the_end_is_416_with_the_size(client: TestClient, asked: str) -> None:
    file_id = upload(client, b"0123456789", purpose="user_data")["id"]
    answer = client.get(f"/v1/files/{file_id}/content", headers={"range": asked})
    assert (answer.status_code, answer.headers["content-range"]) == (416, "bytes */10")
    assert error_of(answer)["message"]


def test_content_has_an_etag_for_caches_and_resumed_downloads(client: TestClient) -> None:
    data = lines(1)
    url = f"/v1/files/{upload(client, data)['id']}/content"
    tag = f'"{hashlib.sha256(data).hexdigest()}"'
    assert client.get(url).headers["etag"] == tag
    assert client.get(url, headers={"if-none-match": tag}).status_code == 304
    ranged = {"range": "bytes=0-0"}
    assert client.get(url, headers=ranged | {"if-range": tag}).status_code == 206
    assert client.get(url, headers=ranged | {"if-range": '"other"'}).status_code == 200


def listed(client: TestClient, **query: Any) -> tuple[list[str], bool]:
    page = client.get("/v1/files", params=query).json()
    ids = [file["id"] for file in page["data"]]
    assert (page["object"], page["first_id"], page["last_id"]) == (
        "list",
        ids[0] if ids else None,
        ids[-1] if ids else None,
    )
    return ids, page["has_more"]


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_pages_follow_each_other_and_have_every_file_once(
    deployment: Deployment, client: TestClient, order: str
) -> None:
    made = []
    for number in range(5):
        made.append(upload(client)["id"])
        if number % 2:  # some at the same moment
            clock_of(deployment).advance(timedelta(seconds=1))
    everything, _ = listed(client, order=order)
    found: list[str] = []
    has_more = True
    while has_more:
        ids, has_more = listed(
            client, order=order, limit=2, **({"after": found[-1]} if found else {})
        )
        found += ids
    assert (found, sorted(found)) == (everything, sorted(made))
    newest_first = found if order == "desc" else found[::-1]
    assert newest_first[0] == made[-1]


def test_list_can_be_of_one_purpose(client: TestClient) -> None:
    upload(client)
    other = upload(client, b"x", purpose="user_data")["id"]
    assert listed(client, purpose="user_data") == ([other], False)
    assert listed(client, purpose="batch_output") == ([], False)


@pytest.mark.parametrize(
    ("query", "param", "code"),
    [
        ({"limit": "10001"}, "limit", "integer_above_max_value"),
        ({"limit": "-1"}, "limit", "integer_below_min_value"),
        ({"limit": "ten"}, "limit", "invalid_type"),
        ({"order": "up"}, "order", "invalid_value"),
        ({"purpose": "a\0"}, "purpose", "invalid_value"),
    ],
)
def test_wrong_list_parameter_is_400(
    client: TestClient, query: dict[str, str], param: str, code: str
) -> None:
    answer = client.get("/v1/files", params=query)
    assert answer.status_code == 400
    assert (error_of(answer)["param"], error_of(answer)["code"]) == (param, code)


def test_limit_0_is_an_empty_page(client: TestClient) -> None:
    upload(client)
    assert listed(client, limit=0) == ([], False)


def test_page_behind_an_unknown_file_is_404(client: TestClient) -> None:
    assert client.get("/v1/files", params={"after": "file-none"}).status_code == 404


def test_results_are_files_too(deployment: Deployment, client: TestClient) -> None:
    batch_id = create(client, upload(client, jsonl(LINE))["id"])["id"]
    tend(deployment)
    complete_all(deployment, batch_id)
    finalize(deployment, batch_id)
    output = client.get(f"/v1/batches/{batch_id}").json()["output_file_id"]
    assert client.get(f"/v1/files/{output}").json()["filename"] == f"{batch_id}_output.jsonl"
    assert listed(client, purpose="batch_output") == ([output], False)
