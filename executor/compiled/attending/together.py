"""Several rows over a tile of keys and values, as matrix products of a strip of queries at a time.

Keys times strip gives scores with a column for each query head, whose softmax needs no sum over
the lanes of a vector, and scores turned times values the mixture.
"""

from __future__ import annotations

from executor.compiled.attending.ahead import PIECE
from executor.compiled.attending.cache import TILE, in_one_block, member, token_at
from executor.compiled.attending.softcap import cap
from executor.compiled.dots import scale
from executor.compiled.halves import FLOAT32, widen
from executor.compiled.kernel import inlined
from executor.compiled.matrix import multiply
from executor.compiled.softmax import soften_columns


@inlined
def attend_tile(  # type: ignore[no-untyped-def]
    a, work, unit, head, position, queries, strips, planned,
    key_size, value_size, strip, most_rows, wide, stored,
):  # fmt: skip
    """All of the unit's rows over the tile from `position` on.

    Meanwhile what is planned of `work.pieces` is fetched.
    """
    row = member(a, unit, 0)
    work.pieces[planned] = work.zeros.ctypes.data
    n = 0
    if stored != FLOAT32:
        _widen_tile(
            a, work, row, head, position, work.edges[3, :strips].max(), key_size, value_size, wide,
            stored,
        )  # fmt: skip
    for s in range(strips):
        q = s * strip
        length = min(TILE, work.edges[3, s] - position)
        if length <= 0 or position + TILE <= work.edges[0, s]:
            continue
        scores = work.scores.ctypes.data
        done = 0
        while done < length:
            if stored == FLOAT32:
                part = in_one_block(a, position + done, length - done)
                keys = a.keys + 4 * token_at(a, row, position + done, head) * key_size
            else:
                part, keys = length, work.keys.ctypes.data
            blocks = (part + most_rows - 1) // most_rows
            for block in range(blocks):
                t = part * block // blocks
                multiply(
                    keys + 4 * t * key_size, key_size, 1,
                    work.columns[s].ctypes.data, strip, key_size, work.zeros.ctypes.data, 0,
                    scores + 4 * (done + t) * strip, strip,
                    work.pieces[min(n, planned)], PIECE // key_size if n < planned else 0,
                    part * (block + 1) // blocks - t, most_rows, 2, wide, FLOAT32,
                )  # fmt: skip
                n += 1
            done += part
        if a.softcap > 0:
            cap(scores, length * strip, a.softcap)
        if work.edges[1, s] <= position and position + TILE <= work.edges[2, s]:
            soften_columns(
                scores, position, work.starts[q:].ctypes.data, work.ends[q:].ctypes.data,
                work.highest[q:].ctypes.data, work.total[q:].ctypes.data,
                work.shrink[q:].ctypes.data, TILE, 2, 0, wide,
            )  # fmt: skip
        else:
            soften_columns(
                scores, position, work.starts[q:].ctypes.data, work.ends[q:].ctypes.data,
                work.highest[q:].ctypes.data, work.total[q:].ctypes.data,
                work.shrink[q:].ctypes.data, TILE, 2, 1, wide,
            )  # fmt: skip
        used = min(strip, queries - q)
        for i in range(q, q + used):
            if work.shrink[i] < 1:
                mixed = work.mixed[i].ctypes.data
                scale(mixed, work.shrink[i], mixed, value_size, wide)
        done = 0
        while done < length:
            if stored == FLOAT32:
                part = in_one_block(a, position + done, length - done)
                values = a.values + 4 * token_at(a, row, position + done, head) * value_size
            else:
                part, values = length, work.values.ctypes.data
            blocks = (used + most_rows - 1) // most_rows
            for block in range(blocks):
                i = used * block // blocks
                for d in range(0, value_size, strip):
                    sums = work.mixed[q + i].ctypes.data + 4 * d
                    multiply(
                        scores + 4 * (done * strip + i), 1, strip,
                        values + 4 * d, value_size, part, sums, value_size, sums, value_size,
                        work.pieces[min(n, planned)], PIECE // TILE if n < planned else 0,
                        used * (block + 1) // blocks - i, most_rows, 2, wide, FLOAT32,
                    )  # fmt: skip
                    n += 1
            done += part


@inlined
def _widen_tile(  # type: ignore[no-untyped-def]
    a, work, row, head, position, end, key_size, value_size, wide, stored
):
    """Keys and values of a tile that ends before `end`, in float32 for all strips."""
    length, done = min(TILE, end - position), 0
    while done < length:
        part = in_one_block(a, position + done, length - done)
        at = token_at(a, row, position + done, head)
        widen(
            a.keys + a.number_bytes * at * key_size, work.keys[done:].ctypes.data,
            part, key_size, wide, stored,
        )  # fmt: skip
        widen(
            a.values + a.number_bytes * at * value_size, work.values[done:].ctypes.data,
            part, value_size, wide, stored,
        )  # fmt: skip
        done += part
