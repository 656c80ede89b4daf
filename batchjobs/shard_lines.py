"""The request lines of a shard, read back from the input object or from the lines of it that
intake brought together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from batchjobs.endpoints.base import Body
from batchjobs.envelope import read_body
from batchjobs.errors import IntegrityError, InvalidRequestError
from batchjobs.jsonl import RawLine, parse_object, read_lines
from batchjobs.queue.claims import Work
from batchjobs.store.base import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLine:
    """Line `number` of the file; `size` is its bytes. `model` is the name that it asks for, or
    the job's override, and is also what the body says."""

    number: int
    size: int
    custom_id: str
    model: str
    body: Body


def read_shard(store: ObjectStore, work: Work) -> Iterator[ShardLine]:
    """The shard's lines in the order in which they are to run; memory holds one at a time.

    Raises:
        IntegrityError: they are not what intake saw.
        StoreError: the object cannot be read.
    """
    count = 0
    longest = work.byte_end - work.byte_start  # intake has checked, perhaps under another limit
    with store.open(work.input_key, start=work.byte_start, end=work.byte_end) as stream:
        for raw in read_lines(stream, longest, first_number=work.first_line, start=work.byte_start):
            line = _read_planned(raw, work) if work.is_planned else _parse(raw, work)
            if work.models.get(line.model) == work.model:
                count += 1
                yield line
    if count != work.line_count:
        raise IntegrityError(
            f"Shard {work.number} of {work.job_id} has {work.line_count} lines, but its range of"
            f" {work.input_key} has {count}: the input is not what was validated."
        )


def _read_planned(raw: RawLine, work: Work) -> ShardLine:
    """A line that says its number first."""
    number, tab, data = (raw.data or b"").partition(b"\t")
    if not tab or not number.isdigit():
        raise IntegrityError(f"A line of {work.input_key} at byte {raw.start} has no number.")
    return _parse(RawLine(int(number), raw.end - len(data) - 1, raw.end, data), work)


def _parse(raw: RawLine, work: Work) -> ShardLine:
    try:
        request = parse_object(raw.data or b"")
        body = read_body(request, url=work.endpoint, model_override=work.model_override)
        return ShardLine(
            number=raw.number,
            size=raw.end - raw.start,
            custom_id=request["custom_id"],
            model=body["model"],
            body=body,
        )
    except (InvalidRequestError, KeyError) as wrong:
        raise IntegrityError(
            f"Line {raw.number} of {work.input_key} is not what was validated: {wrong}"
        ) from wrong
