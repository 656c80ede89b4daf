"""Which rows of a step go through the attention kernel together (`kernel`), and what it is told."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from executor.attention.base import PackedBatch
from executor.attention.cascade import SharedPrefix
from executor.attention.kernel import Arguments

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
        return 1 if rows == 1 else _fewest_strips(self, rows)


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

    fewest = -(-rows // cutting.most_rows)
    most = max(fewest, -(-rows * cutting.group // cutting.strip))
    return min(range(fewest, min(most, rows) + 1), key=cost)


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """One call of the kernel, the same in all layers of one kind.

    `given` holds the addresses of `kept`, which must outlive it.
    """

    given: Arguments
    counter: ctypes.c_int64
    kept: tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A step's calls, one after the other: what rows share, if anything, and their own."""

    calls: tuple[Units, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Of each row [T]: whose it is, from which token to which it attends, and its state's place."""

    sequences: Ints
    starts: Ints
    ends: Ints
    places: Ints


def plan_units(
    batch: PackedBatch, window: int | None, shared: list[SharedPrefix], *,
    block_size: int, cutting: Cutting, numbers_per_state: int,
) -> Plan:  # fmt: skip
    """Divide a step's rows into units.

    Args:
        numbers_per_state: that a row leaves for later, of all heads together.
    """
    rows = _rows(batch, window)
    own = _divided(batch, cutting)
    if not shared:
        return Plan(calls=(_units(batch, rows, own, None, leaves=False),))
    rows, groups = _split_off(rows, shared, block_size)
    states = torch.empty(sum(map(len, groups)) * numbers_per_state)
    before = _Rows(
        sequences=rows.sequences,
        starts=np.zeros_like(rows.starts),
        ends=rows.starts,
        places=rows.places,
    )
    together = _joined([_cut(group, cutting) for group in groups])
    return Plan(
        calls=(
            _units(batch, before, together, states, leaves=True),
            _units(batch, rows, own, states, leaves=False),
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Division:
    """Units [U], each `counts` of `members` from `firsts` on."""

    members: Ints
    firsts: Ints
    counts: Ints


def _rows(batch: PackedBatch, window: int | None) -> _Rows:
    counts, contexts = np.array(batch.query_lens), np.array(batch.context_lens)
    sequences = np.repeat(np.arange(len(counts)), counts)
    behind = np.arange(len(sequences)) - np.repeat(np.array(batch.query_starts), counts)
    ends = np.repeat(contexts - counts + 1, counts) + behind
    starts = np.zeros_like(ends) if window is None else np.maximum(ends - window, 0)
    return _Rows(sequences=sequences, starts=starts, ends=ends, places=np.full_like(ends, -1))


def _split_off(
    rows: _Rows, shared: list[SharedPrefix], block_size: int
) -> tuple[_Rows, list[Ints]]:
    """The rows as they go on behind what they share, and the rows of each group."""
    groups, total = [], 0
    starts, places = rows.starts.copy(), rows.places.copy()
    for prefix in shared:
        group = np.flatnonzero(np.isin(rows.sequences, prefix.sequences))
        starts[group] = len(prefix.blocks) * block_size
        places[group] = np.arange(total, total + len(group))
        total += len(group)
        groups.append(group)
    return _Rows(sequences=rows.sequences, starts=starts, ends=rows.ends, places=places), groups


def _divided(batch: PackedBatch, cutting: Cutting) -> _Division:
    """Every sequence's rows in units of about the same size."""
    starts, counts = np.array(batch.query_starts), np.array(batch.query_lens)
    pieces = np.array([cutting.pieces(count) for count in batch.query_lens])
    sequence = np.repeat(np.arange(len(counts)), pieces)
    piece = np.arange(len(sequence)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    begins = counts[sequence] * piece // pieces[sequence]
    ends = counts[sequence] * (piece + 1) // pieces[sequence]
    return _Division(
        members=np.arange(counts.sum()), firsts=starts[sequence] + begins, counts=ends - begins
    )


def _cut(group: Ints, cutting: Cutting) -> _Division:
    """The rows of one group in units of about the same size."""
    pieces = cutting.pieces(len(group))
    edges = len(group) * np.arange(pieces + 1) // pieces
    return _Division(members=group, firsts=edges[:-1], counts=np.diff(edges))


def _joined(divisions: list[_Division]) -> _Division:
    before = np.cumsum([0, *(len(d.members) for d in divisions)])
    return _Division(
        members=np.concatenate([d.members for d in divisions]),
        firsts=np.concatenate([d.firsts + n for d, n in zip(divisions, before, strict=False)]),
        counts=np.concatenate([d.counts for d in divisions]),
    )


_UNIT_OVERHEAD = 3
"""Rows whose arithmetic takes as long as reading the keys and values of a unit."""


def _units(
    batch: PackedBatch, rows: _Rows, division: _Division, states: Tensor | None, *, leaves: bool
) -> Units:
    last = division.members[division.firsts + division.counts - 1]
    cost = (division.counts + _UNIT_OVERHEAD) * (rows.ends[last] - rows.starts[last])
    arrays = {
        "order": np.argsort(-cost, kind="stable"),
        "firsts": division.firsts,
        "counts": division.counts,
        "members": division.members,
        "sequences": rows.sequences,
        "starts": rows.starts,
        "ends": rows.ends,
        "tables": batch.block_tables.numpy(),
    }
    if states is not None:
        arrays["places"] = rows.places
    counter = ctypes.c_int64()
    given = Arguments(
        units=len(division.counts),
        table_width=batch.block_tables.shape[1],
        states=0 if states is None else states.data_ptr(),
        leaves=leaves,
        counter=ctypes.addressof(counter),
        **{name: array.ctypes.data for name, array in arrays.items()},
    )
    return Units(given=given, counter=counter, kept=(arrays, states))
