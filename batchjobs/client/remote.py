"""Answers from a server, over its HTTP API."""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import quote

import httpx2
from pydantic import SecretStr

from batchjobs.client.base import ModelName, Order
from batchjobs.client.batch import Batch, Page
from batchjobs.client.connection import ANSWER_SECONDS, PATIENT_SECONDS, Connection
from batchjobs.client.download import open_download
from batchjobs.closing import Closing
from batchjobs.errors import (
    BatchJobsError,
    InvalidFileError,
    InvalidRequestError,
    NotFoundError,
    TooLargeError,
)

if TYPE_CHECKING:
    from batchjobs.client.schedules import Schedules

MAX_WAIT_SECONDS = 60
"""As the API has it."""
UPLOADED_SECONDS = 600
"""For a server to store the last of a file."""
CANCELLED_SECONDS = 2
"""For a server to publish a job that nobody works on."""
_PURPOSE = "batch"
_OF_THE_FILE = ("file", "endpoint")
"""Parameters of requests that say what is in the file."""
SAME_AGAIN_SECONDS = 1.0
"""How soon an answer without news is asked for again, of a server that does not wait with it."""


class RemoteClient(Closing):
    deployment: None = None

    def __init__(self, url: str, api_key: SecretStr | None = None) -> None:
        self._server = Connection(url, api_key)

    @property
    def schedules(self) -> Schedules:
        from batchjobs.client.schedules import RemoteSchedules

        return RemoteSchedules(self._server, self._upload)

    def submit(self, stream: BinaryIO, order: Order) -> Batch:
        """Raises InvalidFileError too: a server refuses some files before there is a job."""
        try:
            return self._submit(stream, order)
        except TooLargeError:
            raise
        except InvalidRequestError as wrong:
            if wrong.param not in _OF_THE_FILE:
                raise
            raise InvalidFileError(wrong.message, param=wrong.param, code=wrong.code) from wrong

    def batch(self, job_id: str) -> Batch:
        return self._batch(self._server.get(_batch_path(job_id)))

    def wait(self, batch: Batch, *, seconds: float) -> Batch:
        began = time.monotonic()
        seconds = min(seconds, MAX_WAIT_SECONDS)
        answer = self._server.get(
            _batch_path(batch.id),
            params={"wait": int(seconds)},
            headers={} if batch.etag is None else {"if-none-match": batch.etag},
            answer_seconds=seconds + ANSWER_SECONDS,
            pauses=PATIENT_SECONDS,
        )
        is_same = answer.status_code == httpx2.codes.NOT_MODIFIED
        now = batch if is_same else self._batch(answer)
        if now.wire == batch.wire and not now.is_terminal:
            passed = time.monotonic() - began
            time.sleep(max(0.0, min(SAME_AGAIN_SECONDS, seconds) - passed))
        return now

    def advice(self, batch: Batch) -> str | None:
        return batch.notice

    def page(self, *, limit: int, after: str | None = None) -> Page:
        query = {"limit": limit} if after is None else {"limit": limit, "after": after}
        answer = self._server.get("/v1/batches", params=query)
        return Page(self._server.read_object(answer, "list"))

    def cancel(self, job_id: str) -> Batch:
        answer = self._server.post(f"{_batch_path(job_id)}/cancel", may_repeat=True)
        # Without its ETag, it is waited for until it has ended.
        asked = Batch(self._batch(answer).wire)
        return asked if asked.is_terminal else self.wait(asked, seconds=CANCELLED_SECONDS)

    def retry(self, job_id: str) -> Batch:
        answer = self._server.post(
            f"{_batch_path(job_id)}/retry", may_repeat=False, answer_seconds=UPLOADED_SECONDS
        )
        return self._batch(answer)

    def open(self, file_id: str) -> BinaryIO:
        return open_download(self._server, _content_path(file_id))

    def locate(self, file_id: str) -> str:
        return f"{self._server.url}{_content_path(file_id)}"

    def models(self) -> list[ModelName]:
        page = self._server.read_object(self._server.get("/v1/models"), "list")
        aliases: dict[str, list[str]] = {}
        for model in page["data"]:
            name = str(model.get("root") or model["id"])
            aliases.setdefault(name, [])
            if model["id"] != name:
                aliases[name].append(model["id"])
        return [
            ModelName(name=name, aliases=tuple(others), source=None, revision=None)
            for name, others in aliases.items()
        ]

    def check_ready(self) -> None:
        """Raises RemoteError if the server cannot be reached or is not ready."""
        self._server.get("/readyz")

    def close(self) -> None:
        self._server.close()

    def _submit(self, stream: BinaryIO, order: Order) -> Batch:
        file_id = self._upload(stream, order.filename)
        asked: dict[str, Any] = {
            "input_file_id": file_id,
            "endpoint": order.endpoint,
            "completion_window": order.window,
        }
        extra = {
            "metadata": order.metadata,
            "model": order.model,
            "seed": order.seed,
            "priority": order.priority,
        }
        asked |= {name: value for name, value in extra.items() if value}
        try:
            return self._create(asked)
        except InvalidRequestError:
            with suppress(BatchJobsError):  # it is the refusal that matters
                self._server.delete(f"/v1/files/{quote(file_id, safe='')}")
            raise

    def _upload(self, stream: BinaryIO, filename: str) -> str:
        # Names of undecodable bytes are legal for a file, but not in a request.
        name = filename.encode(errors="replace").decode()
        answer = self._server.post(
            "/v1/files",
            may_repeat=False,
            data={"purpose": _PURPOSE},
            files={"file": (name, stream, "application/jsonl")},
            answer_seconds=UPLOADED_SECONDS,
        )
        return str(self._server.read_object(answer, "file")["id"])

    def _create(self, asked: dict[str, Any]) -> Batch:
        key = secrets.token_hex(16)
        answer = self._server.post(
            "/v1/batches", may_repeat=True, json=asked, headers={"idempotency-key": key}
        )
        return self._batch(answer)

    def _batch(self, answer: httpx2.Response) -> Batch:
        return Batch(self._server.read_object(answer, "batch"), answer.headers.get("etag"))


def _batch_path(job_id: str) -> str:
    if job_id in ("", ".", ".."):  # these would be another path
        raise NotFoundError(f"No batch found with id '{job_id}'.")
    return f"/v1/batches/{quote(job_id, safe='')}"


def _content_path(file_id: str) -> str:
    return f"/v1/files/{quote(file_id, safe='')}/content"
