"""Where in the paged cache a row's keys and values lie. `a` is what the kernel is given."""

from __future__ import annotations

from typing import Any

from executor.compiled.access import int_at
from executor.compiled.kernel import jit

TILE = 64
"""Keys scored before the softmax is brought up to date."""


@jit
def token_at(a: Any, row: int, position: int, head: int) -> int:
    """Where a token of the row's sequence lies, counted in tokens of a head."""
    table = a.tables + 8 * int_at(a.sequences, row) * a.table_width
    block = int_at(table, position // a.block_size)
    place: int = (block * a.kv_heads + head) * a.block_size + position % a.block_size
    return place


@jit
def in_one_block(a: Any, position: int, length: int) -> int:
    """How many of `length` tokens from `position` on lie in one block."""
    part: int = min(length, a.block_size - position % a.block_size)
    return part


@jit
def member(a: Any, unit: int, place: int) -> int:
    """The row that is the unit's first, second, … one."""
    row: int = int_at(a.members, int_at(a.firsts, unit) + place)
    return row


@jit
def own_start(a: Any, unit: int, row: int) -> int:
    """The token from which on the row attends alone; none if that is not before its end."""
    start: int = max(int_at(a.starts, row), int_at(a.shared, unit))
    return start


@jit
def own_token(a: Any, unit: int, head: int, place: int) -> int:
    """Where the first token lies that a row of the unit attends over alone, or its last one."""
    row = member(a, unit, place)
    at: int = token_at(a, row, min(own_start(a, unit, row), int_at(a.ends, row) - 1), head)
    return at


@jit
def first_token(a: Any, ticket: int) -> int:
    """Where the tokens of the unit with this ticket begin."""
    row = member(a, ticket_unit(a, ticket), 0)
    place: int = token_at(a, row, int_at(a.starts, row), ticket_head(a, ticket))
    return place


@jit
def ticket_unit(a: Any, ticket: int) -> int:
    unit: int = int_at(a.order, ticket % a.units)
    return unit


@jit
def ticket_head(a: Any, ticket: int) -> int:
    """Of the keys."""
    head: int = ticket // a.units
    return head
