"""A job as the API shows it, at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from batchjobs.states import TERMINAL


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch object of the API. `etag` is that of the answer it came in, if it had one.

    Times are seconds of the epoch. What a server leaves out, as another version's may, is None.
    """

    wire: Mapping[str, Any]
    etag: str | None = None

    @property
    def id(self) -> str:
        return str(self.wire["id"])

    @property
    def status(self) -> str:
        return str(self.wire["status"])

    @property
    def is_terminal(self) -> bool:
        return self.status in TERMINAL

    @property
    def endpoint(self) -> str:
        return str(self.wire.get("endpoint"))

    @property
    def models(self) -> Sequence[str]:
        """The names on its lines, once it is validated."""
        return self.wire.get("models") or [name for name in [self.wire.get("model")] if name]

    @property
    def system_fingerprints(self) -> Sequence[str]:
        """Of the engines that computed its results, once it has ended."""
        return self.wire.get("system_fingerprints") or ()

    @property
    def total_lines(self) -> int:
        return self._count("request_counts", "total")

    @property
    def failed_lines(self) -> int:
        return self._count("request_counts", "failed")

    @property
    def finished_lines(self) -> int:
        return self._count("request_counts", "completed") + self.failed_lines

    @property
    def prompt_tokens(self) -> int:
        return self._count("usage", "input_tokens")

    @property
    def completion_tokens(self) -> int:
        return self._count("usage", "output_tokens")

    @property
    def output_file_id(self) -> str | None:
        return self.wire.get("output_file_id")

    @property
    def error_file_id(self) -> str | None:
        return self.wire.get("error_file_id")

    @property
    def created_at(self) -> int:
        return int(self.wire.get("created_at") or 0)

    @property
    def expires_at(self) -> int | None:
        return self.wire.get("expires_at")

    @property
    def eta(self) -> int | None:
        """When it is expected to end."""
        return self.wire.get("eta")

    @property
    def is_at_risk(self) -> bool:
        """Whether it is expected to miss its deadline."""
        return bool(self.wire.get("at_risk"))

    @property
    def notice(self) -> str | None:
        """What its owner should know, in a sentence."""
        return self.wire.get("notice")

    @property
    def metadata(self) -> Mapping[str, str]:
        return self.wire.get("metadata") or {}

    @property
    def problems(self) -> Sequence[Mapping[str, Any]]:
        """What validation found: `code`, `message`, `line` (None: of the whole file), `param`."""
        return (self.wire.get("errors") or {}).get("data") or ()

    def _count(self, group: str, name: str) -> int:
        return int((self.wire.get(group) or {}).get(name) or 0)


@dataclass(frozen=True, slots=True)
class Page:
    """One page of batch objects, as the API gives it."""

    wire: Mapping[str, Any]

    @property
    def batches(self) -> list[Batch]:
        return [Batch(batch) for batch in self.wire["data"]]

    @property
    def has_more(self) -> bool:
        return bool(self.wire["has_more"])
