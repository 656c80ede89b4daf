from __future__ import annotations

import pytest

from batchjobs.api.uploads import Upload
from batchjobs.deployment import Deployment
from tests.support.api import lines

CONTENT_TYPE = "multipart/form-data; boundary=edge"


def body_of(data: bytes) -> bytes:
    return (
        b'--edge\r\nContent-Disposition: form-data; name="file"; filename="a.jsonl"\r\n'
        b"Content-Type: application/octet-stream\r\n\r\n" + data + b"\r\n"
        b'--edge\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--edge--\r\n'
    )


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
def test_upload_is_the_same_however_it_is_cut(deployment: Deployment, size: int) -> None:
    data = lines(3) + b"\r\n--edg\r\n--edge-\r\n"
    body = body_of(data)
    upload = Upload(deployment, CONTENT_TYPE)
    for start in range(0, len(body), size):
        upload.feed(body[start : start + size])
    file = upload.finish()
    assert (file.filename, file.purpose, file.bytes) == ("a.jsonl", "batch", len(data))
    with deployment.store.open(file.key) as stream:
        assert stream.read() == data


@pytest.mark.parametrize("length", [10, 150, 200])
def test_aborted_upload_leaves_nothing(deployment: Deployment, length: int) -> None:
    upload = Upload(deployment, CONTENT_TYPE)
    upload.feed(body_of(lines(1))[:length])
    upload.abort(ConnectionResetError("gone"))
    assert list(deployment.store.list("")) == []
