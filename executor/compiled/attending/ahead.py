"""What is fetched from memory while several rows are at work, which needs little of it.

A list of pieces, of which every product fetches one: it takes about as long as its arithmetic.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from executor.compiled.access import int_at
from executor.compiled.attending.cache import (
    TILE,
    in_one_block,
    member,
    own_start,
    ticket_head,
    ticket_unit,
    token_at,
)
from executor.compiled.kernel import jit

Pieces = NDArray[np.int64]

PIECE = 4096
"""Bytes."""

MOST_PIECES = 128
"""More are not fetched before they are needed."""


@jit
def plan_ahead(
    a: Any, pieces: Pieces, unit: int, head: int, position: int, end: int,
    alone: int, due: int, following: int, key_bytes: int, value_bytes: int,
) -> int:  # fmt: skip
    """What comes after the tile of the unit that ends at `end`; how many pieces that is.

    The next tile, then what the unit's rows from `alone` to `due` attend over by themselves; after
    the last tile the first one of the unit with the ticket `following`. A key and a value of a
    head have so many bytes.
    """
    planned, tile, row = 0, position + TILE, member(a, unit, 0)
    if tile < end:
        planned = _add_tile(a, pieces, planned, row, head, tile, end, key_bytes, value_bytes)
    for place in range(alone, due):
        row = member(a, unit, place)
        start, stop = own_start(a, unit, row), int_at(a.ends, row)
        for own in range(start, stop, TILE):
            planned = _add_tile(a, pieces, planned, row, head, own, stop, key_bytes, value_bytes)
    if tile >= end and following < a.units * a.kv_heads:
        row, head = member(a, ticket_unit(a, following), 0), ticket_head(a, following)
        start, stop = int_at(a.starts, row), int_at(a.ends, row)
        planned = _add_tile(a, pieces, planned, row, head, start, stop, key_bytes, value_bytes)
    return planned


@jit
def _add_tile(
    a: Any, pieces: Pieces, planned: int, row: int, head: int, position: int, end: int,
    key_bytes: int, value_bytes: int,
) -> int:  # fmt: skip
    """The row's tokens from `position` on, at most a tile, at the end of the pieces."""
    stop = min(end, position + TILE)
    while position < stop and planned < MOST_PIECES:
        part = in_one_block(a, position, stop - position)
        at = token_at(a, row, position, head)
        planned = _add(pieces, planned, a.keys + at * key_bytes, part * key_bytes)
        planned = _add(pieces, planned, a.values + at * value_bytes, part * value_bytes)
        position += part
    return planned


@jit
def _add(pieces: Pieces, planned: int, address: int, size: int) -> int:
    for behind in range(0, size, PIECE):
        if planned < MOST_PIECES:
            pieces[planned] = address + behind
            planned += 1
    return planned
