"""What can go wrong, by what a caller can do about it.

BatchJobsError            every error of ours; its message is one sentence a person can act on
├── UsageError            the command or its argument is wrong: say it again, corrected
├── NotFoundError         no such job, file or model
├── ConflictError         the state does not allow it (wire: 409)
├── InvalidRequestError   a request to the API, or one line of a file, is wrong (wire: 400)
│   ├── AuthenticationError   it comes without an API key that is taken (wire: 401)
│   ├── InvalidFileError  a file is refused as a whole, before there is a job of it
│   └── TooLargeError     it has more bytes than are taken (wire: 413)
├── ModelError            a model cannot be loaded or cannot be packed
├── StoreError            the object store
│   ├── ObjectExistsError
│   └── ObjectMissingError
├── DatabaseError         the database refused or failed: full disk, no permission, damage
├── RemoteError           a server cannot be reached, or failed
├── LeaseLostError        another worker holds the shard now: write nothing more
├── IntegrityError        counts or checksums disagree: a bug or damaged data, never published
└── Interrupted           asked to stop; everything finished is kept and the job can be resumed
"""

from __future__ import annotations

from typing import Any


class BatchJobsError(Exception):
    """Base of every error of ours."""

    status_code = 500
    type = "server_error"
    code: str | None = None
    param: str | None = None

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param if param is not None else self.param
        self.code = code if code is not None else self.code

    def wire(self) -> dict[str, Any]:
        """The public API's error body: all four keys, always."""
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
            }
        }


class InvalidRequestError(BatchJobsError):
    """A request or a line is wrong in itself; retrying it unchanged gives the same answer."""

    status_code = 400
    type = "invalid_request_error"


class InvalidFileError(InvalidRequestError):
    """A file of requests is refused as a whole, before there is a job that could fail."""


class TooLargeError(InvalidRequestError):
    """A request has more bytes than are taken."""

    status_code = 413


class AuthenticationError(InvalidRequestError):
    """A request has no API key, or one that is not taken."""

    status_code = 401


class UsageError(InvalidRequestError):
    """A command line or setting is wrong."""


class NotFoundError(InvalidRequestError):
    """No such job, file or model."""

    status_code = 404


class ConflictError(InvalidRequestError):
    """The object's state does not allow the operation."""

    status_code = 409


class ModelError(BatchJobsError):
    """A model cannot be loaded, or would be computed wrongly by a packed batch."""


class StoreError(BatchJobsError):
    """The object store refused or failed."""


class ObjectExistsError(StoreError):
    """Objects are written once; this key is taken."""


class ObjectMissingError(StoreError):
    """No object has this key."""


class DatabaseError(BatchJobsError):
    """The database refused or failed."""


class RemoteError(BatchJobsError):
    """The server that was asked cannot be reached, failed, or is none of ours."""


class LeaseLostError(BatchJobsError):
    """Another worker holds the shard under a greater fence."""


class IntegrityError(BatchJobsError):
    """Numbers that must agree do not."""


class Interrupted(BatchJobsError):
    """Asked to stop."""
