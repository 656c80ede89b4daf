"""What a thread keeps of the unit at hand: its query heads, and how far their softmax is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from executor.compiled.access import float_at, int_at
from executor.compiled.attending.ahead import MOST_PIECES
from executor.compiled.attending.cache import TILE, member
from executor.compiled.dots import scale
from executor.compiled.exponential import LOG2_E
from executor.compiled.kernel import inlined, jit
from executor.compiled.matrix import transpose

Floats = NDArray[np.float32]

OCTAVES = np.float32(LOG2_E)
_LOWEST = np.float32(-1e30)


class Work(NamedTuple):
    """A row's query heads lie one behind the other, filled up to whole strips."""

    query: Floats  # [Q, Dk], scaled
    columns: Floats  # [strips, Dk, strip]: the same turned, a strip behind the other
    scores: Floats  # [max(strip, group), TILE] or [TILE, strip], of the tile at hand
    mixed: Floats  # [Q, Dv]: values by their weights so far
    highest: Floats  # [Q]: score so far
    total: Floats  # [Q]: of weights so far
    shrink: Floats  # [Q]: by what a tile makes earlier weights smaller
    starts: NDArray[np.int32]  # [Q]: the first token that each sees together with the others
    ends: NDArray[np.int32]  # [Q]: behind the last one
    edges: NDArray[np.int64]  # [4, strips]: lowest and highest of starts, then of ends
    pieces: NDArray[np.int64]  # addresses of what is to be fetched meanwhile (`ahead`)
    zeros: Floats  # [strip]
    keys: Floats  # [TILE, Dk]: of the tile at hand, where the cache has 16 bits
    values: Floats  # [TILE, Dv]


@jit
def in_whole_lines(count: int) -> Floats:
    """Memory for numbers that begin with a cache line: no vector then lies in two."""
    room = np.empty(count + 16, dtype=np.float32)
    skipped = -(room.ctypes.data // 4) % 16
    return room[skipped : skipped + count]


@inlined
def work_space(queries, strips, strip, group, key_size, value_size):  # type: ignore[no-untyped-def]
    """For units of up to so many strips."""
    scores = max(strip, group)
    return Work(
        in_whole_lines(queries * key_size).reshape((queries, key_size)),
        in_whole_lines(strips * key_size * strip).reshape((strips, key_size, strip)),
        in_whole_lines(scores * TILE).reshape((scores, TILE)),
        in_whole_lines(queries * value_size).reshape((queries, value_size)),
        np.zeros(queries, dtype=np.float32),
        np.zeros(queries, dtype=np.float32),
        np.zeros(queries, dtype=np.float32),
        np.zeros(queries, dtype=np.int32),
        np.zeros(queries, dtype=np.int32),
        np.zeros((4, strips), dtype=np.int64),
        np.zeros(MOST_PIECES + 1, dtype=np.int64),
        np.zeros(strip, dtype=np.float32),
        in_whole_lines(TILE * key_size).reshape((TILE, key_size)),
        in_whole_lines(TILE * value_size).reshape((TILE, value_size)),
    )


@inlined
def begin(a, work, unit, head, place, group, key_size, width):  # type: ignore[no-untyped-def]
    """Queries of one of the unit's rows, and their state: nothing yet, or a sink."""
    row, shared = member(a, unit, place), int_at(a.shared, unit)
    factor = a.scale if a.softcap > 0 else a.scale * OCTAVES
    for g in range(group):
        q = place * group + g
        source = row * a.query_row + (head * group + g) * a.query_head
        scale(a.query + 4 * source, factor, work.query[q].ctypes.data, key_size, width)
        work.highest[q], work.total[q] = _LOWEST, np.float32(0)
        if a.sinks != 0:
            work.highest[q] = OCTAVES * float_at(a.sinks, head * group + g)
            work.total[q] = np.float32(1)
        work.mixed[q] = np.float32(0)
        work.starts[q] = int_at(a.starts, row)
        work.ends[q] = min(int_at(a.ends, row), shared)


@inlined
def turn(work, queries, strips, key_size, strip, wide):  # type: ignore[no-untyped-def]
    """Lay the unit's queries out as columns, with zeros beside them, and note the strips' edges."""
    for s in range(strips):
        starts = work.starts[s * strip : min(queries, (s + 1) * strip)]
        ends = work.ends[s * strip : min(queries, (s + 1) * strip)]
        work.edges[0, s], work.edges[1, s] = starts.min(), starts.max()
        work.edges[2, s], work.edges[3, s] = ends.min(), ends.max()
    for q in range(queries, strips * strip):
        for d in range(key_size):
            work.query[q, d] = np.float32(0)
    for q in range(0, strips * strip, wide):
        transpose(
            work.query.ctypes.data + 4 * q * key_size,
            work.columns[q // strip].ctypes.data + 4 * (q % strip),
            key_size, strip, wide,
        )  # fmt: skip


@inlined
def finish(a, work, unit, head, place, group, value_size, width):  # type: ignore[no-untyped-def]
    """Write the output of one of the unit's rows."""
    target = a.output + 4 * (member(a, unit, place) * a.kv_heads + head) * group * value_size
    for g in range(group):
        q = place * group + g
        scale(
            work.mixed[q].ctypes.data, np.float32(1) / work.total[q],
            target + 4 * g * value_size, value_size, width,
        )  # fmt: skip
