"""Parts: results of some lines of a shard, as a worker stored and committed them."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import orjson

from batchjobs.errors import IntegrityError
from batchjobs.models import Part
from batchjobs.queue.claims import ShardFacts
from batchjobs.states import Outcome
from batchjobs.store.base import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A line of the output or the error file; `outcome` None was never answered."""

    line: int
    outcome: Outcome | None
    record: dict[str, Any]


def read_part(store: ObjectStore, part: Part) -> Iterator[Result]:
    """The results in the order they were stored in, with the whole part in memory.

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
    for line in data.removesuffix(b"\n").split(b"\n"):
        entry = orjson.loads(line)
        yield Result(line=entry["line"], outcome=Outcome(entry["outcome"]), record=entry["record"])


def in_line_order(
    shards: Iterable[ShardFacts], results_of: Callable[[ShardFacts], Iterable[Result]]
) -> Iterator[Result]:
    """The results of shards in the order of the file. Shards of different models overlap, those
    of one do not: one shard of each model is asked for at a time."""
    by_model: dict[str, list[ShardFacts]] = {}
    for shard in shards:
        by_model.setdefault(shard.work.model, []).append(shard)
    streams = [chain.from_iterable(map(results_of, of_model)) for of_model in by_model.values()]
    return heapq.merge(*streams, key=lambda result: result.line)
