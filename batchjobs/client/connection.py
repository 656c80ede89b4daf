"""Requests to one server: sent again where that is safe, and every failure is one sentence.

| request | sent again after |
|---|---|
| that may come twice (GET, create with a key, cancel) | a broken connection, a timeout, 429, 5xx |
| any other | a connection that was never made |
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

import httpx2
from pydantic import SecretStr

from batchjobs import __version__
from batchjobs.errors import (
    BatchJobsError,
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    RemoteError,
    TooLargeError,
    UsageError,
)

CONNECT_SECONDS = 10
ANSWER_SECONDS = 60
REPEAT_SECONDS = (0.2, 0.5, 1.0)
"""How long is waited before a request is sent again; so often it is."""
PATIENT_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""The same for one who waits for hours anyway: a server may start anew meanwhile."""

_NUMBER = re.compile(r"^\[Errno [^]]*\] ")
_PASSING = frozenset({429, 500, 502, 503, 504})
_NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_KINDS: dict[int, type[InvalidRequestError]] = {
    404: NotFoundError,
    409: ConflictError,
    413: TooLargeError,
}


class Connection:
    def __init__(self, url: str, api_key: SecretStr | None) -> None:
        self.url = url
        self.has_key = api_key is not None
        headers = {"user-agent": f"batchjobs/{__version__}"}
        if api_key is not None:
            headers["authorization"] = f"Bearer {api_key.get_secret_value()}"
        timeout = httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)
        self._http = httpx2.Client(base_url=url, headers=headers, timeout=timeout)

    def close(self) -> None:
        self._http.close()

    def get(
        self,
        path: str,
        *,
        answer_seconds: float = ANSWER_SECONDS,
        pauses: Sequence[float] | None = None,
        **options: Any,
    ) -> httpx2.Response:
        timeout = httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS, read=answer_seconds)
        return self._send("GET", path, pauses=pauses, timeout=timeout, **options)

    def post(
        self, path: str, *, may_repeat: bool, answer_seconds: float = ANSWER_SECONDS, **options: Any
    ) -> httpx2.Response:
        timeout = httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS, read=answer_seconds)
        return self._send("POST", path, may_repeat=may_repeat, timeout=timeout, **options)

    def delete(self, path: str) -> httpx2.Response:
        return self._send("DELETE", path)

    def read_object(self, answer: httpx2.Response, kind: str) -> dict[str, Any]:
        """The JSON object of an answer, whose `object` is `kind`. Raises RemoteError."""
        try:
            value = answer.json()
        except ValueError:
            value = None
        if not isinstance(value, dict) or value.get("object") != kind:
            raise self._stranger(answer)
        return value

    def broken(self, failed: httpx2.TransportError) -> RemoteError:
        """What is said when the server could not be asked."""
        match failed:
            case httpx2.ConnectTimeout() | httpx2.ConnectError():
                return RemoteError(
                    f"{self.url} cannot be reached ({_reason(failed)}): start it with `batchjobs"
                    " up`, or correct BATCHJOBS_URL."
                )
            case httpx2.TimeoutException():
                return RemoteError(
                    f"{self.url} did not answer in time ({_reason(failed)}): try again later."
                )
        return RemoteError(
            f"The connection to {self.url} broke ({_reason(failed)}): try again, and look at the"
            " server's log if it breaks again."
        )

    def _send(
        self,
        method: str,
        path: str,
        *,
        may_repeat: bool = True,
        pauses: Sequence[float] | None = None,
        stream: bool = False,
        **options: Any,
    ) -> httpx2.Response:
        for pause in (*(REPEAT_SECONDS if pauses is None else pauses), None):
            try:
                request = self._http.build_request(method, path, **options)
                answer = self._http.send(request, stream=stream)
            except httpx2.TransportError as failed:
                if pause is None or not (may_repeat or isinstance(failed, _NEVER_SENT)):
                    raise self.broken(failed) from failed
            else:
                if pause is None or not may_repeat or answer.status_code not in _PASSING:
                    return self._checked(answer)
                answer.close()
            time.sleep(pause)
        raise AssertionError("unreachable")

    def _checked(self, answer: httpx2.Response) -> httpx2.Response:
        if answer.is_success or answer.status_code == httpx2.codes.NOT_MODIFIED:
            return answer
        try:
            answer.read()
        except httpx2.TransportError as failed:
            raise self.broken(failed) from failed
        finally:
            answer.close()
        raise self._refusal(answer)

    def _refusal(self, answer: httpx2.Response) -> BatchJobsError:
        status, error = answer.status_code, _read_error(answer)
        if status in (401, 403):
            how = "does not take the key in" if self.has_key else "asks for an API key: set"
            return UsageError(f"{self.url} {how} BATCHJOBS_API_KEY{self._key_advice}.")
        if status >= 500:
            said = "" if error is None else f": {_words(error['message'])}"
            return RemoteError(
                f"{self.url} failed with status {status}; try again later, or look at the"
                f" server's log{said or '.'}"
            )
        if error is None:
            return self._stranger(answer)
        return self._wrong(status, error)

    @property
    def _key_advice(self) -> str:
        if self.has_key:
            return ": set it to one that `batchjobs keys` made there"
        return " to one that `batchjobs keys` made there"

    def _wrong(self, status: int, error: dict[str, Any]) -> BatchJobsError:
        """What is wrong with the request, as a command on its own data would say it."""
        message, code, param = _words(error["message"]), error.get("code"), error.get("param")
        kind = _KINDS.get(status, InvalidRequestError)
        if code == "model_not_found":
            kind = NotFoundError
        if kind is NotFoundError:
            message = f"{message.removesuffix('.')} (at {self.url})."
        return kind(message, code=code, param=param)

    def _stranger(self, answer: httpx2.Response) -> RemoteError:
        request = answer.request
        return RemoteError(
            f"{self.url} does not answer as a batchjobs server does (status {answer.status_code}"
            f" to {request.method} {request.url.path}): correct BATCHJOBS_URL."
        )


def _read_error(answer: httpx2.Response) -> dict[str, Any] | None:
    """The error of the API's error body, if it is one."""
    try:
        value = answer.json()
    except ValueError:
        return None
    error = value.get("error") if isinstance(value, dict) else None
    return error if isinstance(error, dict) and isinstance(error.get("message"), str) else None


def _reason(failed: httpx2.TransportError) -> str:
    return _words(_NUMBER.sub("", str(failed))) or type(failed).__name__


def _words(text: str) -> str:
    """One line that cannot steer the terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
