"""The request lines of a shard, read back from the input object."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from batchjobs.errors import IntegrityError
from batchjobs.jsonl import parse_object, read_lines
from batchjobs.queue.claims import Work
from batchjobs.store.base import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLine:
    """Line `number` of the file; `model` is the name it asked for, `size` its bytes."""

    number: int
    size: int
    custom_id: str
    model: str
    body: dict[str, Any]


def read_shard(store: ObjectStore, work: Work) -> Iterator[ShardLine]:
    """The shard's lines in file order; memory holds one at a time.

    Raises:
        IntegrityError: they are not what intake saw.
        StoreError: the input object cannot be read.
    """
    count = 0
    with store.open(work.input_key, start=work.byte_start, end=work.byte_end) as stream:
        longest = work.byte_end - work.byte_start  # whatever the limit was at intake
        for raw in read_lines(stream, longest, first_number=work.first_line, start=work.byte_start):
            request = parse_object(raw.data or b"")
            model = work.model_override or request["body"]["model"]
            if work.model_override is None and work.models.get(model) != work.model:
                continue
            count += 1
            yield ShardLine(
                number=raw.number,
                size=raw.end - raw.start,
                custom_id=request["custom_id"],
                model=model,
                body=request["body"],
            )
    if count != work.line_count:
        raise IntegrityError(
            f"Shard {work.number} of {work.job_id} has {work.line_count} lines, but its range of"
            f" {work.input_key} has {count}: the input is not what was validated."
        )
