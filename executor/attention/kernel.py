"""The attention kernel: keys and values are read once for all queries that can share them.

A unit of work is one key head of some rows of a step that read the same tokens: a sequence's only
row, a part of a prompt, or rows of several sequences with the same beginning. Its query heads are
scored against a tile of keys after the other, with the softmax kept up (FlashAttention, Dao et al.
2022): `attend_tile` for all rows that share the tile, `attend_alone` for one row. Threads take one
unit after the other, the longest first.

Rows of several sequences attend over what they share together, and each over its own alone
(cascade attention, FlashInfer; Hydragen, Juravsky et al. 2024). The one is arithmetic and the
other waits for memory, so they take turns: after each shared tile comes the turn of some rows,
whose own tokens were fetched while the tile was worked on.
"""

from __future__ import annotations

import ctypes
from functools import cache

from numba import carray

from executor.compiled.access import int_at, take_ticket
from executor.compiled.attending.ahead import plan_ahead
from executor.compiled.attending.alone import attend_alone
from executor.compiled.attending.cache import TILE, ticket_head, ticket_unit
from executor.compiled.attending.queries import begin, finish, turn, work_space
from executor.compiled.attending.together import attend_tile
from executor.compiled.emit import vector_width
from executor.compiled.kernel import compiled, revision
from executor.compiled.matrix import MOST_ROWS

MAX_GROUP = 16
"""More query heads to a key head than this would not fit the registers."""

UNIT_QUERIES = 192
"""Query heads of one unit at most, or those of two rows: they and what they have mixed stay in a
core's second cache, and a tile of keys and values in its first while all strips of them pass."""


class Arguments(ctypes.Structure):
    """What a kernel is given; fields without a shape are numbers, others addresses."""

    _fields_ = (
        ("query", ctypes.c_int64),  # [T, Hq, Dk] at
        ("query_row", ctypes.c_int64),  # its strides, in numbers
        ("query_head", ctypes.c_int64),
        ("output", ctypes.c_int64),  # [T, Hq, Dv], contiguous
        ("keys", ctypes.c_int64),  # [N, Hkv, block_size, Dk], contiguous, of the stored type
        ("values", ctypes.c_int64),  # [N, Hkv, block_size, Dv], contiguous, of the stored type
        ("number_bytes", ctypes.c_int64),  # of that type
        ("kv_heads", ctypes.c_int64),
        ("block_size", ctypes.c_int64),
        ("units", ctypes.c_int64),  # how many
        ("order", ctypes.c_int64),  # [units] int64: which first
        ("firsts", ctypes.c_int64),  # [units] int64: place of its first row in `members`
        ("counts", ctypes.c_int64),  # [units] int64: its number of rows
        ("shared", ctypes.c_int64),  # [units] int64: up to which token they attend together
        ("members", ctypes.c_int64),  # int64: rows, those of a unit together
        ("sequences", ctypes.c_int64),  # [T] int64: whose each row is
        ("starts", ctypes.c_int64),  # [T] int64: from which token it attends
        ("ends", ctypes.c_int64),  # [T] int64: and up to which
        ("tables", ctypes.c_int64),  # [S, table_width] int64
        ("table_width", ctypes.c_int64),
        ("sinks", ctypes.c_int64),  # [Hq], or 0
        ("counter", ctypes.c_int64),  # int64, 0 at the beginning
        ("scale", ctypes.c_float),
        ("softcap", ctypes.c_float),  # or 0
    )


EVERY_TOKEN = 1 << 40
"""More than there are: rows of such a unit attend together all the way."""


@cache
def fitting_width(group: int, key_size: int, value_size: int, block_size: int) -> int | None:
    """Floats a vector for these sizes; None if there is no kernel for them."""
    sizes = (key_size, value_size, block_size)
    fits = (w for w in (16, 8) if w <= vector_width() and all(n % w == 0 for n in sizes))
    return next(fits, None) if group <= MAX_GROUP else None


@cache
def strip_size(group: int, key_size: int, value_size: int, block_size: int) -> int | None:
    """Query heads that a unit scores at a time; None where there is no product for these sizes,
    and a unit is one row."""
    width = fitting_width(group, key_size, value_size, block_size)
    wide = None if width is None else _product_width(width, value_size)
    return None if wide is None else 2 * wide


def unit_rows(group: int) -> int:
    """Rows that a unit may have at most."""
    return max(2, UNIT_QUERIES // group)


def _product_width(width: int, value_size: int) -> int | None:
    """Products have two vectors to a row."""
    return next((w for w in (16, 8) if w <= width and value_size % (2 * w) == 0), None)


@cache
def attention_kernel(group: int, key_size: int, value_size: int, width: int, stored: int) -> int:
    """The address of the kernel void(Arguments*) for these sizes and a cache of the type `stored`
    (`halves`); call it on any threads."""
    code = revision()
    wide = _product_width(width, value_size) or 8
    strip, together = 2 * wide, MOST_ROWS[wide]
    strips_at_most = -(-unit_rows(group) * group // strip)
    queries = strips_at_most * strip

    def kernel(pointer):  # type: ignore[no-untyped-def]
        a = carray(pointer, 1)[0]
        work = work_space(queries, strips_at_most, strip, group, key_size, value_size)
        ticket = take_ticket(a.counter)
        tickets = a.units * a.kv_heads
        while code >= 0 and ticket < tickets:
            following = take_ticket(a.counter)
            unit, head = ticket_unit(a, ticket), ticket_head(a, ticket)
            count, shared = int_at(a.counts, unit), int_at(a.shared, unit)
            for place in range(count):
                begin(a, work, unit, head, place, group, key_size, width)
            strips = (count * group + strip - 1) // strip if shared > 0 else 0
            turn(work, count * group, strips, key_size, strip, wide)
            start = position = work.starts[: count * group].min()
            end = work.ends[: count * group].max()
            alone = 0
            while alone < count:
                due = count
                if position + TILE < end:
                    due = count * (position + TILE - start) // (end - start)
                if position < end:
                    planned = plan_ahead(
                        a, work.pieces, unit, head, position, end, alone, due, following,
                        a.number_bytes * key_size, a.number_bytes * value_size,
                    )  # fmt: skip
                    attend_tile(
                        a, work, unit, head, position, count * group, strips, planned,
                        key_size, value_size, strip, together, wide, stored,
                    )  # fmt: skip
                    position += TILE
                for place in range(alone, due):
                    attend_alone(
                        a, work, unit, head, place, count, following,
                        group, key_size, value_size, width, stored,
                    )  # fmt: skip
                alone = due
            for place in range(count):
                finish(a, work, unit, head, place, group, value_size, width)
            ticket = following

    return compiled(kernel, Arguments)
