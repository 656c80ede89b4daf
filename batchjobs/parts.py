"""Parts: results of some lines of a shard, as a worker stored and committed them."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, zip_longest
from typing import Any

import orjson

from batchjobs.errors import IntegrityError
from batchjobs.jsonl import dump_line
from batchjobs.models import Part
from batchjobs.queue.claims import ShardFacts
from batchjobs.states import Outcome
from batchjobs.store.base import ObjectStore

READ_AHEAD = 4
"""Shards whose parts are read at once, as a store may be far away: memory holds those of all."""

_RECORD = b'"record":'


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A line of the output or the error file, as `data` with its line feed; `outcome` None was
    never answered."""

    line: int
    outcome: Outcome | None
    custom_id: str
    data: bytes


def part_line(line: int, outcome: Outcome, record: dict[str, Any]) -> bytes:
    """A result as it lies in a part; `record` is its line in the output or error file."""
    return dump_line({"line": line, "outcome": outcome, "record": record})


def read_part(store: ObjectStore, part: Part) -> list[Result]:
    """The results in the order they were stored in.

    Raises:
        ObjectMissingError: the part is gone: its job has ended.
        IntegrityError: it is damaged.
    """
    with store.open(part.key) as stream:
        data = stream.read()
    if hashlib.sha256(data).hexdigest() != part.sha256:
        raise IntegrityError(
            f"The results in {store.locate(part.key)} are damaged: their checksum is not the one"
            " they were written with."
        )
    return [_read(line) for line in data.removesuffix(b"\n").split(b"\n")]


def in_line_order(
    shards: Sequence[ShardFacts], results: Iterable[Iterable[Result]]
) -> Iterator[Result]:
    """The `results` of each of the shards, which come by their first line, in the order of the
    file. Shards overlap: memory holds the results that are before a shard not yet read."""
    waiting: list[tuple[int, int, Result]] = []
    order = count()
    following = [shard.work.first_line for shard in shards[1:]]
    for finished, next_line in zip_longest(results, following):
        for result in finished or ():
            heapq.heappush(waiting, (result.line, next(order), result))
        while waiting and (next_line is None or waiting[0][0] < next_line):
            yield heapq.heappop(waiting)[2]


def _read(line: bytes) -> Result:
    entry = orjson.loads(line)
    return Result(
        line=entry["line"],
        outcome=Outcome(entry["outcome"]),
        custom_id=entry["record"]["custom_id"],
        # The record as it was written, behind two values of ours that cannot hold the word.
        data=line[line.index(_RECORD) + len(_RECORD) : -1] + b"\n",
    )
