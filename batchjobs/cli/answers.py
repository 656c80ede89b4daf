"""Result lines as a person reads them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from batchjobs.answer_text import answer_text

if TYPE_CHECKING:
    from batchjobs.client.base import Client
    from batchjobs.client.batch import Batch

MAX_REASONS = 3
_NUMBER = re.compile(r"\d+")
_LINES_LOOKED_AT = 1000
"""Of an error file, for the reasons in a summary: enough to tell, and quick."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`status` is the HTTP-like code, or what kept the line from running; `text` is what a person
    reads of the answer, or the error's message."""

    custom_id: str
    status: str
    text: str

    @classmethod
    def of(cls, record: dict[str, Any]) -> Answer:
        """Of a line of an output or error file."""
        custom_id = str(record["custom_id"])
        if record["error"] is not None:
            code, text = record["error"]["code"], record["error"]["message"]
            return cls(custom_id=custom_id, status=code, text=text)
        status, body = record["response"]["status_code"], record["response"]["body"]
        return cls(custom_id=custom_id, status=str(status), text=_body_text(body))

    @property
    def kind(self) -> str:
        """What it has in common with errors that differ from it in numbers at most."""
        return _NUMBER.sub("0", self.text)


def first_answers(client: Client, batch: Batch, limit: int) -> list[Answer]:
    """Of up to `limit` lines: the output file's, then the error file's."""
    answers: list[Answer] = []
    for file_id in (batch.output_file_id, batch.error_file_id):
        if file_id is not None:
            answers += _answers(client, file_id, limit - len(answers))
    return answers


def first_reasons(client: Client, batch: Batch) -> list[str]:
    """Why lines failed, the most frequent first: how often, and the first line's message."""
    if batch.error_file_id is None:
        return []
    failed = _answers(client, batch.error_file_id, _LINES_LOOKED_AT)
    times = Counter(answer.kind for answer in failed)
    first = {answer.kind: answer.text for answer in reversed(failed)}
    told = times.most_common(MAX_REASONS)
    rows = [f"{count:,} × {first[kind]}" for kind, count in told]
    if rest := len(failed) - sum(count for _, count in told):
        rows.append(f"{rest:,} × for {len(times) - len(told):,} other reasons")
    if batch.failed_lines > len(failed):
        rows.insert(0, f"of the first {len(failed):,} lines that failed:")
    return rows


def _answers(client: Client, file_id: str, limit: int) -> list[Answer]:
    with client.open(file_id) as lines:
        return [Answer.of(record) for record in _records(lines, limit)]


def _records(lines: BinaryIO, limit: int) -> Iterator[dict[str, Any]]:
    import orjson

    for _, line in zip(range(limit), lines, strict=False):
        yield orjson.loads(line)


def _body_text(body: dict[str, Any]) -> str:
    if body.get("error") is not None:  # which a response has as null, if there was none
        return str(body["error"]["message"])
    return answer_text(body, between=" ┃ ")
