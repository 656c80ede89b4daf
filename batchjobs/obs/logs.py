"""Logs: a line a record, for a person or as JSON, with the ids of what it is about.

Ids come with a record (`extra`) or from around it (`log_fields`). What looks like a password is
taken out of every line, whoever wrote it.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, TextIO

import orjson
from pydantic import SecretStr
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from batchjobs.settings import Settings

FIELDS = ("job_id", "shard", "model", "worker", "request_id")
HIDDEN = "***"
MIN_SECRET_CHARS = 8
"""A shorter password would also be found in words that are none."""

_IN_URLS = re.compile(r"(?<=://)([^\s/:@]*):[^\s/@]+@")
_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_around: ContextVar[Mapping[str, Any]] = ContextVar("log_fields", default={})  # noqa: B039


@contextmanager
def log_fields(**fields: Any) -> Iterator[None]:
    """Whatever this thread or task logs in the context is about these ids; keys are `FIELDS`."""
    token = _around.set({**_around.get(), **fields})
    try:
        yield
    finally:
        _around.reset(token)


def configure(settings: Settings, *, default_level: str) -> None:
    """Log to standard error: of ours from the level on, of libraries and of Python itself
    warnings and errors."""
    kind = JsonFormatter if settings.log_format == "json" else TextFormatter
    handler = _StderrHandler()
    handler.setFormatter(kind(secrets_of(settings)))
    root = logging.getLogger()
    for earlier in [known for known in root.handlers if isinstance(known, _StderrHandler)]:
        root.removeHandler(earlier)
    root.addHandler(handler)
    logging.captureWarnings(True)
    for name in ("batchjobs", "executor"):
        logging.getLogger(name).setLevel((settings.log_level or default_level).upper())


def secrets_of(settings: Settings) -> tuple[str, ...]:
    """The secret settings and the passwords in them, as they may turn up in a line."""
    values = (getattr(settings, name) for name in type(settings).model_fields)
    urls = [value.get_secret_value() for value in values if isinstance(value, SecretStr)]
    found = {*urls, *(password for url in urls if (password := _password(url)))}
    return tuple(sorted((word for word in found if len(word) >= MIN_SECRET_CHARS), key=len))[::-1]


class TextFormatter(logging.Formatter):
    """For a person: the ids stand behind the message."""

    def __init__(self, secrets: Collection[str] = ()) -> None:
        super().__init__(_TEXT)
        self._secrets = secrets

    def formatMessage(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{name}={value}" for name, value in _fields(record).items())
        line = super().formatMessage(record)
        return f"{line} [{fields}]" if fields else line

    def format(self, record: logging.LogRecord) -> str:
        return hide(super().format(record), self._secrets)


class JsonFormatter(logging.Formatter):
    """For a program: an object a line, `time` in UTC, with a traceback under `error`."""

    def __init__(self, secrets: Collection[str] = ()) -> None:
        super().__init__()
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        known = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            known["error"] = self.formatException(record.exc_info)
        shown = {key: self._shown(value) for key, value in known.items()}
        return orjson.dumps(shown, default=str).decode()

    def _shown(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return hide(value, self._secrets).encode(errors="replace").decode()


def hide(text: str, secrets: Collection[str]) -> str:
    """The text without these words, and without passwords of URLs."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return _IN_URLS.sub(rf"\1:{HIDDEN}@", text)


class _StderrHandler(logging.StreamHandler[TextIO]):
    """To standard error as it is at the time of the record."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    around = _around.get()
    found = {name: getattr(record, name, around.get(name)) for name in FIELDS}
    return {name: value for name, value in found.items() if value is not None}


def _password(url: str) -> str | None:
    try:
        return make_url(url).password
    except (ArgumentError, ValueError):
        return None
