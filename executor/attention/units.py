"""Which rows of a step go through the attention kernel together (`kernel`), and what it is told."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from executor.attention.base import PackedBatch
from executor.attention.cascade import SharedPrefix
from executor.attention.kernel import EVERY_TOKEN, Arguments

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutting:
    """How rows that read the same tokens are cut into units.

    Each has `group` query heads to each of `kv_heads` key heads; a unit has `most_rows` at most
    and scores `strip` query heads at a time, also where it has fewer; `threads` share the units.
    """

    most_rows: int
    group: int
    strip: int
    kv_heads: int
    threads: int

    def pieces(self, rows: int) -> int:
        """Into how many units rows are cut that go all the way together."""
        return 1 if rows == 1 else _fewest_strips(self, rows)

    def group_pieces(self, rows: int, groups: int) -> int:
        """The same for rows that go on alone, where there are so many groups of such.

        As few as give every thread the same number of units: each reads what is shared anew.
        """
        step = self.threads // math.gcd(self.threads, self.kv_heads * groups)
        fewest, most = self.bounds(rows)
        return min(-(-fewest // step) * step, most)

    def bounds(self, rows: int) -> tuple[int, int]:
        """Units no larger than they may be, and no more of them than there are full strips."""
        fewest = -(-rows // self.most_rows)
        return fewest, max(fewest, -(-rows * self.group // self.strip))


_PIECE_OVERHEAD = 0.1
"""Of a strip's time, that a unit takes beside its strips."""


@lru_cache(maxsize=4096)
def _fewest_strips(cutting: Cutting, rows: int) -> int:
    """Into how many pieces, so that few strips have empty places and no thread waits for long."""

    def cost(pieces: int) -> float:
        small, larger = divmod(rows, pieces)
        strips = [-(-size * cutting.group // cutting.strip) for size in (small, small + 1)]
        total = (pieces - larger) * strips[0] + larger * strips[1]
        last_alone = strips[1] if larger else strips[0]
        shared = (total + _PIECE_OVERHEAD * pieces) * cutting.kv_heads / cutting.threads
        return shared + last_alone

    fewest, most = cutting.bounds(rows)
    return min(range(fewest, min(most, rows) + 1), key=cost)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One call of the kernel, the same in all layers of one kind.

    `given` holds the addresses of `kept`, which must outlive it.
    """

    given: Arguments
    counter: ctypes.c_int64
    kept: tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Of each row [T]: whose it is, and from which token to which it attends."""

    sequences: Ints
    starts: Ints
    ends: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class _Division:
    """Units [U], each `counts` of `members` from `firsts` on.

    Its rows attend together up to the token `shared`, and from there on each by itself.
    """

    members: Ints
    firsts: Ints
    counts: Ints
    shared: Ints


def plan_units(
    batch: PackedBatch, window: int | None, shared: list[SharedPrefix], *,
    block_size: int, cutting: Cutting,
) -> Plan:  # fmt: skip
    """Divide a step's rows into units."""
    rows = _rows(batch, window)
    grouped = [s for prefix in shared for s in prefix.sequences]
    alone = np.delete(np.arange(len(batch.query_lens)), grouped)
    divisions = [_divided(batch, alone, cutting)]
    for prefix in shared:
        group = np.flatnonzero(np.isin(rows.sequences, prefix.sequences))
        pieces = cutting.group_pieces(len(group), len(shared))
        divisions.append(_cut(group, pieces, len(prefix.blocks) * block_size))
    return _plan(batch, rows, _joined(divisions))


def _rows(batch: PackedBatch, window: int | None) -> _Rows:
    counts, contexts = np.array(batch.query_lens), np.array(batch.context_lens)
    sequences = np.repeat(np.arange(len(counts)), counts)
    behind = np.arange(len(sequences)) - np.repeat(np.array(batch.query_starts), counts)
    ends = np.repeat(contexts - counts + 1, counts) + behind
    starts = np.zeros_like(ends) if window is None else np.maximum(ends - window, 0)
    return _Rows(sequences=sequences, starts=starts, ends=ends)


def _divided(batch: PackedBatch, sequences: Ints, cutting: Cutting) -> _Division:
    """Every sequence's rows in units of about the same size."""
    starts, counts = np.array(batch.query_starts), np.array(batch.query_lens)
    pieces = np.array([cutting.pieces(counts[s]) for s in sequences], dtype=np.int64)
    sequence = np.repeat(sequences, pieces)
    pieces_of = np.repeat(pieces, pieces)
    piece = np.arange(len(sequence)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    begins = counts[sequence] * piece // pieces_of
    ends = counts[sequence] * (piece + 1) // pieces_of
    sizes = ends - begins
    return _Division(
        members=np.arange(counts.sum()),
        firsts=starts[sequence] + begins,
        counts=sizes,
        shared=np.where(sizes > 1, EVERY_TOKEN, 0),
    )


def _cut(group: Ints, pieces: int, shared: int) -> _Division:
    """The rows of one group in units of about the same size."""
    edges = len(group) * np.arange(pieces + 1) // pieces
    return _Division(
        members=group, firsts=edges[:-1], counts=np.diff(edges), shared=np.full(pieces, shared)
    )


def _joined(divisions: list[_Division]) -> _Division:
    before = np.cumsum([0, *(len(d.members) for d in divisions)])
    return _Division(
        members=np.concatenate([d.members for d in divisions]),
        firsts=np.concatenate([d.firsts + n for d, n in zip(divisions, before, strict=False)]),
        counts=np.concatenate([d.counts for d in divisions]),
        shared=np.concatenate([d.shared for d in divisions]),
    )


_UNIT_OVERHEAD = 3
"""Rows whose arithmetic takes as long as reading the keys and values of a unit."""


def _plan(batch: PackedBatch, rows: _Rows, division: _Division) -> Plan:
    last = division.members[division.firsts + division.counts - 1]
    cost = (division.counts + _UNIT_OVERHEAD) * (rows.ends[last] - rows.starts[last])
    arrays = {
        "order": np.argsort(-cost, kind="stable"),
        "firsts": division.firsts,
        "counts": division.counts,
        "shared": division.shared,
        "members": division.members,
        "sequences": rows.sequences,
        "starts": rows.starts,
        "ends": rows.ends,
        "tables": batch.block_tables.numpy(),
    }
    counter = ctypes.c_int64()
    given = Arguments(
        units=len(division.counts),
        table_width=batch.block_tables.shape[1],
        counter=ctypes.addressof(counter),
        **{name: array.ctypes.data for name, array in arrays.items()},
    )
    return Plan(given=given, counter=counter, kept=(arrays,))
