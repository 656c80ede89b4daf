"""A row over tokens that no other row of its unit attends over: its keys are read as they lie."""

from __future__ import annotations

from executor.compiled.access import int_at
from executor.compiled.attending.cache import (
    TILE,
    first_token,
    member,
    own_start,
    own_token,
    token_at,
)
from executor.compiled.attending.softcap import cap
from executor.compiled.dots import dots, mix
from executor.compiled.kernel import inlined
from executor.compiled.softmax import soften


@inlined
def attend_alone(  # type: ignore[no-untyped-def]
    a, work, unit, head, place, count, following, group, key_size, value_size, width, stored
):  # fmt: skip
    """The unit's row at this place, of `count`; meanwhile what comes next is fetched."""
    row, q = member(a, unit, place), place * group
    position, end = own_start(a, unit, row), int_at(a.ends, row)
    query, scores = work.query[q].ctypes.data, work.scores.ctypes.data
    mixed = work.mixed[q].ctypes.data
    while position < end:
        offset = position % a.block_size
        tile = offset - offset % TILE
        first, last = offset - tile, min(TILE, a.block_size - tile, end - position + offset - tile)
        at = ahead = token_at(a, row, position - offset, head) + tile
        position += last - first
        if position < end:
            ahead = token_at(a, row, position, head)
        elif place + 1 < count:
            ahead = own_token(a, unit, head, place + 1)
        elif following < a.units * a.kv_heads:
            ahead = first_token(a, following)
        dots(
            query, a.keys + a.number_bytes * at * key_size, scores, last,
            a.keys + a.number_bytes * ahead * key_size, group, key_size, TILE, width, stored,
        )  # fmt: skip
        for g in range(group):
            if a.softcap > 0:
                cap(scores + 4 * g * TILE, TILE, a.softcap)
            soften(
                scores + 4 * g * TILE, first, last,
                work.highest[q + g :].ctypes.data, work.total[q + g :].ctypes.data,
                mixed + 4 * g * value_size, TILE, value_size, width,
            )  # fmt: skip
        mix(
            scores, a.values + a.number_bytes * at * value_size, mixed, first, last,
            a.values + a.number_bytes * ahead * value_size, group, value_size, TILE, width, stored,
        )  # fmt: skip
