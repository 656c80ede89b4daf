"""Pieces of matrix products whose sums stay in registers."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from executor.compiled.emit import (
    SECOND,
    broadcast,
    emitter,
    fetch,
    fma,
    integer,
    load,
    nothing,
    pointers,
    shuffle,
    signature,
    store,
)
from executor.compiled.halves import STORED_BYTES, load_line

MOST_ROWS = {16: 14, 8: 6}
"""Rows that `multiply` takes with two vectors to a row, by the width: their sums, a line of the
right matrix and a number of the left one fill the registers."""


@emitter
def transpose(typing: Any, source: Any, target: Any, size: Any, target_row: Any, width: Any) -> Any:
    """Turn `width` rows of `size` numbers, one behind the other, into `size` rows of `width`.

    Addresses of float32; the target's rows are `target_row` numbers apart. The last three are
    literals, and `size` is a multiple of `width`.
    """
    shape = [kind.literal_value for kind in (size, target_row, width)]

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        _emit_transpose(builder, *pointers(builder, arguments[:2]), *shape)
        return nothing()

    return signature(2, size, target_row, width), generate


def _emit_transpose(
    builder: Any, source: Any, target: Any, size: int, target_row: int, width: int
) -> None:
    for column in range(0, size, width):
        rows = [load(builder, source, r * size + column, width) for r in range(width)]
        for r, row in enumerate(_turn(builder, rows)):
            store(builder, row, target, (column + r) * target_row)


def _turn(builder: Any, rows: list[Any]) -> list[Any]:
    """The columns of a square, by exchanging ever smaller squares beside the diagonal."""
    width = len(rows)
    distance = width // 2
    while distance:
        lanes = range(width)
        upper = [lane + width - distance if lane & distance else lane for lane in lanes]
        lower = [lane + width if lane & distance else lane + distance for lane in lanes]
        for i in (i for i in lanes if not i & distance):
            pair = rows[i], rows[i + distance]
            rows[i] = shuffle(builder, *pair, upper)
            rows[i + distance] = shuffle(builder, *pair, lower)
        distance //= 2
    return rows


@emitter
def multiply(
    typing: Any, left: Any, left_row: Any, left_step: Any, right: Any, right_row: Any, inner: Any,
    start: Any, start_row: Any, product: Any, product_row: Any, ahead: Any, ahead_step: Any,
    rows: Any, most_rows: Any, vectors: Any, width: Any, stored: Any,
) -> Any:  # fmt: skip
    """product = start + left @ right, for up to `most_rows` rows of `vectors` * `width` columns.

    Addresses of float32 left [rows, inner], right [inner, columns], start and product
    [rows, columns], each followed by its row's stride in numbers (0 starts all rows alike), the
    left one's by its column's as well. The right matrix is of the type `stored` (`halves`).
    Meanwhile `ahead_step` bytes from `ahead` on are fetched for each of `inner`. The last four are
    literals; `rows` is any number from 1 to `most_rows`.
    """
    most, *shape = [kind.literal_value for kind in (most_rows, vectors, width, stored)]

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        _emit_multiply(builder, arguments[:12], arguments[12], most, *shape)
        return nothing()

    return signature(13, most_rows, vectors, width, stored), generate


def _emit_multiply(
    builder: Any, given: Any, rows: Any, most: int, vectors: int, width: int, stored: int
) -> None:
    """One piece of code for each number of rows, so that their sums stay in registers."""
    done = builder.append_basic_block("multiplied")
    choice = builder.switch(rows, done)
    for count in range(1, most + 1):
        block = builder.append_basic_block(f"multiply_{count}")
        choice.add_case(integer(count), block)
        builder.position_at_end(block)
        _emit_product(builder, given, count, vectors, width, stored)
        builder.branch(done)
    builder.position_at_end(done)


def _emit_product(
    builder: Any, given: Any, rows: int, vectors: int, width: int, stored: int
) -> None:
    left_row, left_step, right_row, inner = (given[i] for i in (1, 2, 4, 5))
    start_row, product_row, ahead_step = (given[i] for i in (7, 9, 11))
    left, start, product = pointers(builder, [given[i] for i in (0, 6, 8)])
    line_bytes = builder.mul(right_row, integer(STORED_BYTES[stored]))
    ahead = builder.inttoptr(given[10], ir.IntType(8).as_pointer())
    columns = range(0, vectors * width, width)
    lefts = [builder.gep(left, [builder.mul(integer(r), left_row)]) for r in range(rows)]
    sums = [_start_sums(builder, start, start_row, r, columns, width) for r in range(rows)]
    with cgutils.for_range_slice(builder, integer(0), inner, integer(1)) as (k, _):
        line = builder.add(given[3], builder.mul(k, line_bytes))
        loaded = load_line(builder, line, vectors, width, stored)
        following = builder.gep(ahead, [builder.mul(k, ahead_step)])
        fetch(builder, following, 0, STORED_BYTES[stored] * len(columns) * width, SECOND)
        at = builder.mul(k, left_step)
        for r in range(rows):
            number = broadcast(builder, builder.load(builder.gep(lefts[r], [at])), width)
            added = [
                fma(builder, number, vector, builder.load(total))
                for vector, total in zip(loaded, sums[r], strict=True)
            ]
            *added, at = _in_this_order(builder, [*added, at])
            for vector, total in zip(added, sums[r], strict=True):
                builder.store(vector, total)
    for r in range(rows):
        line = builder.gep(product, [builder.mul(integer(r), product_row)])
        for column, total in zip(columns, sums[r], strict=True):
            store(builder, builder.load(total), line, column)


def _start_sums(
    builder: Any, start: Any, start_row: Any, row: int, columns: range, width: int
) -> list[Any]:
    line = builder.gep(start, [builder.mul(integer(row), start_row)])
    return [
        cgutils.alloca_once_value(builder, load(builder, line, column, width)) for column in columns
    ]


def _in_this_order(builder: Any, values: list[Any]) -> list[Any]:
    """The values as they are, known only once all that was to be computed before them is.

    Left alone, LLVM loads a number for every row first and runs out of registers for the sums:
    eleven rows then take twice as long as they should.
    """
    kinds = [value.type for value in values]
    if not builder.module.triple.startswith("x86_64"):
        return values
    register = {16: "v", 8: "x"}[kinds[0].count]
    names = [register] * (len(values) - 1) + ["r"]
    constraints = [f"={name}" for name in names] + [str(i) for i in range(len(names))]
    result = ir.LiteralStructType(kinds)
    nothing = ir.InlineAsm(
        ir.FunctionType(result, kinds), "", ",".join(constraints), side_effect=True
    )
    same = builder.call(nothing, values)
    return [builder.extract_value(same, i) for i in range(len(values))]
