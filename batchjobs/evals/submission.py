"""Requests of a run as files to submit, and what is kept to score their answers by."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import IO, Any, BinaryIO, cast

import orjson

from batchjobs.closing import Closing
from batchjobs.evals.rendering import PlannedLine
from batchjobs.jsonl import dump_line
from batchjobs.store.base import ObjectWriter

SPOOL_BYTES = 16 << 20


class RequestFiles(Closing):
    """Temporary files of request lines, none larger than a job may be; closed with the context."""

    def __init__(self, url: str, *, max_lines: int, max_bytes: int) -> None:
        self.url = url
        self._max_lines = max_lines
        self._max_bytes = max_bytes
        self._opened = ExitStack()
        self._files: list[IO[bytes]] = []
        self._lines = 0
        self.requests = 0

    def close(self) -> None:
        self._opened.close()

    def add(self, custom_id: str, body: Mapping[str, Any]) -> None:
        line = dump_line(
            {"custom_id": custom_id, "method": "POST", "url": self.url, "body": dict(body)}
        )
        if not self._files or self._is_full(len(line)):
            self._files.append(self._opened.enter_context(_spooled()))
            self._lines = 0
        self._files[-1].write(line)
        self._lines += 1
        self.requests += 1

    def streams(self) -> Iterator[BinaryIO]:
        """Each at its start."""
        for file in self._files:
            file.seek(0)
            yield cast(BinaryIO, file)

    def _is_full(self, more_bytes: int) -> bool:
        size = self._files[-1].tell()
        return self._lines >= self._max_lines or size + more_bytes > self._max_bytes


def _spooled() -> IO[bytes]:
    return tempfile.SpooledTemporaryFile(SPOOL_BYTES)


class Digests:
    """Of all items and all prompts, in order."""

    def __init__(self) -> None:
        self._items = hashlib.sha256()
        self._prompts = hashlib.sha256()
        self.items = 0

    def add(self, line: PlannedLine) -> None:
        if line.sample == 0:
            self.items += 1
            self._items.update(f"{line.item.id}\n{line.item.digest}\n".encode(errors="replace"))
            self._prompts.update(line.prompt_digest.encode())

    @property
    def of_items(self) -> str:
        return self._items.hexdigest()

    @property
    def of_prompts(self) -> str:
        return self._prompts.hexdigest()


def write_plan(target: ObjectWriter, line: PlannedLine) -> None:
    """A line of the plan, which scoring reads beside the answers."""
    target.write(
        dump_line(
            {
                "custom_id": line.custom_id,
                "number": line.number,
                "sample": line.sample,
                "item": line.item.id,
                "cluster": line.item.cluster,
                "tags": line.item.tags,
                "item_digest": line.item.digest,
                "prompt_digest": line.prompt_digest,
                "fields": line.fields,
                "prompt": line.prompt,
            }
        )
    )


def read_plan(stream: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for line in stream:
        yield orjson.loads(line)
