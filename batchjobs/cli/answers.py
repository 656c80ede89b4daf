"""Result lines as a person reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson

from batchjobs.cli.delivery import open_result

if TYPE_CHECKING:
    from batchjobs.deployment import Deployment
    from batchjobs.models import Job

MAX_REASONS = 3
_LINES_LOOKED_AT = 1000
"""Of an error file, for the reasons in a summary: enough to tell, and quick."""

Record = dict[str, Any]


def first_answers(deployment: Deployment, job: Job, limit: int) -> list[tuple[str, str]]:
    """custom_id and answer (or error) of up to `limit` lines: the output file's, then the
    error file's."""
    rows: list[tuple[str, str]] = []
    for file_id in (job.output_file_id, job.error_file_id):
        if file_id is not None and len(rows) < limit:
            with open_result(deployment, file_id) as lines:
                rows += [
                    (str(record["custom_id"]), answer(record))
                    for record in _records(lines, limit - len(rows))
                ]
    return rows


def first_reasons(deployment: Deployment, job: Job) -> list[str]:
    """Why lines failed, the most frequent first, each with how often: `12 × the message`."""
    if job.error_file_id is None:
        return []
    with open_result(deployment, job.error_file_id) as lines:
        reasons = Counter(answer(record) for record in _records(lines, _LINES_LOOKED_AT))
    return [f"{times:,} × {reason}" for reason, times in reasons.most_common(MAX_REASONS)]


def answer(record: Record) -> str:
    """The text of a result line's choices, or its error's message."""
    if record["error"] is not None:
        return str(record["error"]["message"])
    body = record["response"]["body"]
    if "error" in body:
        return str(body["error"]["message"])
    return " ┃ ".join(_choice_text(choice) for choice in body["choices"])


def _choice_text(choice: Record) -> str:
    text = choice["message"]["content"] if "message" in choice else choice["text"]
    return str(text)


def _records(lines: BinaryIO, limit: int) -> Iterator[Record]:
    for _, line in zip(range(limit), lines, strict=False):
        yield orjson.loads(line)
