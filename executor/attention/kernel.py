"""The attention kernel: keys and values are read once for all queries that can share them.

A unit of work is one key head of some rows of a step that read the same tokens: a sequence's only
row, a part of a prompt, or rows of several sequences with the same beginning. Its query heads are
scored against a tile of keys after the other, with the softmax kept up (`softmax`; FlashAttention,
Dao et al. 2022). A single row reads keys as they lie. Several rows are transposed once, and are
matrix products, a strip of query heads at a time: keys times strip gives scores with a column for
each query head, whose softmax needs no sum over the lanes of a vector, and scores turned times
values the mixture. What the next tile needs is fetched meanwhile. Threads take one unit after the
other, the longest first.

A unit begins from nothing, or where an earlier call left its rows; it ends with their output, or
leaves them for a later call: so rows attend over what they share first, and then each over its own
(cascade attention, FlashInfer; Hydragen, Juravsky et al. 2024).
"""

from __future__ import annotations

import ctypes
import math
from functools import cache
from typing import Any

import numpy as np
from numba import carray
from numpy.typing import NDArray

from executor.compiled.access import copy_bytes, float_at, int_at, put_float, take_ticket
from executor.compiled.dots import dots, mix
from executor.compiled.emit import vector_width
from executor.compiled.exponential import LOG2_E
from executor.compiled.kernel import compiled, jit, revision
from executor.compiled.matrix import MOST_ROWS, multiply, transpose
from executor.compiled.softmax import soften, soften_columns

Floats = NDArray[np.float32]

TILE = 64
"""Keys scored before the softmax is brought up to date."""

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
        ("keys", ctypes.c_int64),  # [N, Hkv, block_size, Dk], contiguous
        ("values", ctypes.c_int64),  # [N, Hkv, block_size, Dv], contiguous
        ("kv_heads", ctypes.c_int64),
        ("block_size", ctypes.c_int64),
        ("units", ctypes.c_int64),  # how many
        ("order", ctypes.c_int64),  # [units] int64: which first
        ("firsts", ctypes.c_int64),  # [units] int64: place of its first row in `members`
        ("counts", ctypes.c_int64),  # [units] int64: its number of rows
        ("members", ctypes.c_int64),  # int64: rows, those of a unit together
        ("sequences", ctypes.c_int64),  # [T] int64: whose each row is
        ("starts", ctypes.c_int64),  # [T] int64: from which token it attends
        ("ends", ctypes.c_int64),  # [T] int64: and up to which
        ("tables", ctypes.c_int64),  # [S, table_width] int64
        ("table_width", ctypes.c_int64),
        ("places", ctypes.c_int64),  # [T] int64: row's place in `states`, or -1; 0: none
        ("states", ctypes.c_int64),  # [P, Hq, Dv + 2] float32: of rows that are left for later
        ("leaves", ctypes.c_int64),  # whether this call leaves them, or else begins with them
        ("sinks", ctypes.c_int64),  # [Hq], or 0
        ("counter", ctypes.c_int64),  # int64, 0 at the beginning
        ("scale", ctypes.c_float),
        ("softcap", ctypes.c_float),  # or 0
    )


_LOWEST = np.float32(-1e30)
_OCTAVES = np.float32(LOG2_E)


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
def attention_kernel(group: int, key_size: int, value_size: int, width: int) -> int:
    """The address of the kernel void(Arguments*) for these sizes; call it on any threads."""
    code = revision()
    wide = _product_width(width, value_size) or 8
    strip, together = 2 * wide, MOST_ROWS[wide]
    strips_at_most = -(-unit_rows(group) * group // strip)
    queries = strips_at_most * strip

    def kernel(pointer):  # type: ignore[no-untyped-def]
        a = carray(pointer, 1)[0]
        query = np.empty((queries, key_size), dtype=np.float32)
        columns = np.empty((strips_at_most, key_size, strip), dtype=np.float32)
        scores = np.empty((max(strip, group), TILE), dtype=np.float32)
        mixed = np.empty((queries, value_size), dtype=np.float32)
        highest, total, shrink = np.zeros((3, queries), dtype=np.float32)
        starts, ends = np.zeros((2, queries), dtype=np.int32)
        first_start, last_start, first_end, last_end = np.zeros((4, strips_at_most), dtype=np.int64)
        zeros = np.zeros(strip, dtype=np.float32)
        ticket = take_ticket(a.counter)
        tickets = a.units * a.kv_heads
        while code >= 0 and ticket < tickets:
            following = take_ticket(a.counter)
            unit, head = int_at(a.order, ticket % a.units), ticket // a.units
            first, count = int_at(a.firsts, unit), int_at(a.counts, unit)
            row = int_at(a.members, first)
            position, end = int_at(a.starts, row), int_at(a.ends, row)
            strips = (count * group + strip - 1) // strip if count > 1 else 0
            for i in range(count):
                member = int_at(a.members, first + i)
                start, stop = int_at(a.starts, member), int_at(a.ends, member)
                position, end = min(position, start), max(end, stop)
                starts[i * group : (i + 1) * group] = start
                ends[i * group : (i + 1) * group] = stop
                _begin(a, member, head, i * group, group, query, highest, total, mixed)
            while count == 1 and position < end:
                place = position % a.block_size
                tile = place - place % TILE
                last = min(TILE, a.block_size - tile, end - position + place - tile)
                at = ahead = _token_at(a, row, position - place, head) + tile
                if position - place + tile + last < end:
                    ahead = _token_at(a, row, position - place + tile + last, head)
                elif following < tickets:
                    ahead = _first_token(a, following)
                dots(
                    query.ctypes.data, a.keys + 4 * at * key_size, scores.ctypes.data, last,
                    a.keys + 4 * ahead * key_size, group, key_size, TILE, width,
                )  # fmt: skip
                for q in range(group):
                    if a.softcap > 0:
                        _cap(scores.ctypes.data + 4 * q * TILE, TILE, a.softcap)
                    soften(
                        scores.ctypes.data + 4 * q * TILE, place - tile, last,
                        highest.ctypes.data + 4 * q, total.ctypes.data + 4 * q,
                        mixed.ctypes.data + 4 * q * value_size, TILE, value_size, width,
                    )  # fmt: skip
                mix(
                    scores.ctypes.data, a.values + 4 * at * value_size, mixed.ctypes.data,
                    place - tile, last, a.values + 4 * ahead * value_size,
                    group, value_size, TILE, width,
                )  # fmt: skip
                position += last - (place - tile)
            for s in range(strips):
                begins = starts[s * strip : min(count * group, (s + 1) * strip)]
                stops = ends[s * strip : min(count * group, (s + 1) * strip)]
                first_start[s], last_start[s] = begins.min(), begins.max()
                first_end[s], last_end[s] = stops.min(), stops.max()
            for q in range(count * group, strips * strip):
                for d in range(key_size):
                    query[q, d] = np.float32(0)
            for q in range(0, strips * strip, wide):
                transpose(
                    query.ctypes.data + 4 * q * key_size,
                    columns[q // strip].ctypes.data + 4 * (q % strip),
                    key_size, strip, wide,
                )  # fmt: skip
            while count > 1 and position < end:
                ahead = _token_at(a, row, position, head)
                if position + TILE < end:
                    ahead = _token_at(a, row, position + TILE, head)
                elif following < tickets:
                    ahead = _first_token(a, following)
                for s in range(strips):
                    q = s * strip
                    used = min(strip, count * group - q)
                    length = min(TILE, last_end[s] - position)
                    if length <= 0 or position + TILE <= first_start[s]:
                        continue
                    done = 0
                    while done < length:
                        part = _part(a, position + done, length - done)
                        at = a.keys + 4 * _token_at(a, row, position + done, head) * key_size
                        blocks = (part + together - 1) // together
                        step = 4 * TILE // (strips * blocks) + 1
                        fetched = a.keys + 4 * ahead * key_size + s * blocks * key_size * step
                        for block in range(blocks):
                            t = part * block // blocks
                            multiply(
                                at + 4 * t * key_size, key_size, 1,
                                columns[s].ctypes.data, strip, key_size, zeros.ctypes.data, 0,
                                scores.ctypes.data + 4 * (done + t) * strip, strip,
                                fetched + block * key_size * step, step,
                                part * (block + 1) // blocks - t, together, 2, wide,
                            )  # fmt: skip
                        done += part
                    if a.softcap > 0:
                        _cap(scores.ctypes.data, length * strip, a.softcap)
                    if last_start[s] <= position and position + TILE <= first_end[s]:
                        soften_columns(
                            scores.ctypes.data, position,
                            starts[q:].ctypes.data, ends[q:].ctypes.data,
                            highest[q:].ctypes.data, total[q:].ctypes.data,
                            shrink[q:].ctypes.data, TILE, 2, 0, wide,
                        )  # fmt: skip
                    else:
                        soften_columns(
                            scores.ctypes.data, position,
                            starts[q:].ctypes.data, ends[q:].ctypes.data,
                            highest[q:].ctypes.data, total[q:].ctypes.data,
                            shrink[q:].ctypes.data, TILE, 2, 1, wide,
                        )  # fmt: skip
                    for i in range(q, q + used):
                        if shrink[i] < 1:
                            mixed[i] *= shrink[i]
                    done = 0
                    while done < length:
                        part = _part(a, position + done, length - done)
                        at = a.values + 4 * _token_at(a, row, position + done, head) * value_size
                        blocks = (used + together - 1) // together
                        step = 4 * strip // (strips * blocks) + 1
                        fetched = (
                            a.values
                            + 4 * ahead * value_size
                            + s * blocks * step * (TILE * value_size // strip)
                        )
                        for block in range(blocks):
                            i = used * block // blocks
                            for d in range(0, value_size, strip):
                                sums = mixed.ctypes.data + 4 * ((q + i) * value_size + d)
                                multiply(
                                    scores.ctypes.data + 4 * (done * strip + i), 1, strip,
                                    at + 4 * d, value_size, part, sums, value_size,
                                    sums, value_size,
                                    fetched + step * TILE * (block * value_size + d) // strip, step,
                                    used * (block + 1) // blocks - i, together, 2, wide,
                                )  # fmt: skip
                        done += part
                position += TILE
            for i in range(count):
                _end(a, int_at(a.members, first + i), head, i * group, group, highest, total, mixed)
            ticket = following

    return compiled(kernel, Arguments)


@jit
def _cap(scores: int, count: int, softcap: np.float32) -> None:
    """Keep so many scores within the soft cap, and make powers of two of them."""
    for i in range(count):
        capped = softcap * np.float32(math.tanh(float_at(scores, i) / softcap))
        put_float(scores, i, _OCTAVES * capped)


@jit
def _first_token(a: Any, ticket: int) -> int:
    """Where in the cache the unit with this ticket begins."""
    unit, head = int_at(a.order, ticket % a.units), ticket // a.units
    row = int_at(a.members, int_at(a.firsts, unit))
    place: int = _token_at(a, row, int_at(a.starts, row), head)
    return place


@jit
def _token_at(a: Any, row: int, position: int, head: int) -> int:
    """Where in the cache a token of the row's sequence lies, counted in tokens of a head."""
    table = a.tables + 8 * int_at(a.sequences, row) * a.table_width
    block = int_at(table, position // a.block_size)
    place: int = (block * a.kv_heads + head) * a.block_size + position % a.block_size
    return place


@jit
def _part(a: Any, position: int, length: int) -> int:
    """How many of `length` tokens from `position` on lie in one block."""
    part: int = min(length, a.block_size - position % a.block_size)
    return part


@jit
def _begin(
    a: Any, row: int, head: int, first: int, group: int,
    query: Floats, highest: Floats, total: Floats, mixed: Floats,
) -> None:  # fmt: skip
    """Queries [first, first + group), and their state: nothing, a sink, or what was left."""
    scale = a.scale if a.softcap > 0 else a.scale * _OCTAVES
    for g in range(group):
        q = first + g
        source = row * a.query_row + (head * group + g) * a.query_head
        for d in range(query.shape[1]):
            query[q, d] = scale * float_at(a.query, source + d)
        highest[q], total[q] = _LOWEST, np.float32(0)
        if a.sinks != 0:
            highest[q], total[q] = _OCTAVES * float_at(a.sinks, head * group + g), np.float32(1)
        mixed[q] = np.float32(0)
    if a.places != 0 and a.leaves == 0 and int_at(a.places, row) >= 0:
        at = _state_at(a, row, head, group, mixed.shape[1])
        for q in range(first, first + group):
            copy_bytes(mixed[q].ctypes.data, at, 4 * mixed.shape[1])
            highest[q] = float_at(at, mixed.shape[1])
            total[q] = float_at(at, mixed.shape[1] + 1)
            at += 4 * (mixed.shape[1] + 2)


@jit
def _end(
    a: Any, row: int, head: int, first: int, group: int,
    highest: Floats, total: Floats, mixed: Floats,
) -> None:  # fmt: skip
    """The output of queries [first, first + group), or their state for later."""
    size = mixed.shape[1]
    if a.leaves != 0:
        at = _state_at(a, row, head, group, size)
        for q in range(first, first + group):
            copy_bytes(at, mixed[q].ctypes.data, 4 * size)
            copy_bytes(at + 4 * size, highest[q:].ctypes.data, 4)
            copy_bytes(at + 4 * size + 4, total[q:].ctypes.data, 4)
            at += 4 * (size + 2)
        return
    for q in range(first, first + group):
        inverse = np.float32(1) / total[q]
        for d in range(size):
            mixed[q, d] *= inverse
    target = (row * a.kv_heads + head) * group * size
    copy_bytes(a.output + 4 * target, mixed[first].ctypes.data, 4 * group * size)


@jit
def _state_at(a: Any, row: int, head: int, group: int, size: int) -> int:
    """The address of a row's states of one key head."""
    place: int = (int_at(a.places, row) * a.kv_heads + head) * group
    return a.states + 4 * place * (size + 2)  # type: ignore[no-any-return]
