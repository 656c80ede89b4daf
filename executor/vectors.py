"""Vector code for Numba kernels, written as LLVM instructions.

Numba turns loops into vectors well but keeps their results in memory between loops; here sums
stay in registers. Addresses are plain integers and sizes are fixed when a function is made, so
that everything unrolls. Runs on any CPU that LLVM knows.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

_FLOAT = ir.FloatType()
_INT = ir.IntType(64)

MOST_ROWS = {16: 14, 8: 6}
"""Rows that `multiply` takes with two vectors to a row, by the width: their sums, a line of the
right matrix and a number of the left one fill the registers."""

_ACCUMULATORS = {16: 24, 8: 12}
"""Vector registers that hold sums, by the width: of 32 with AVX-512, of 16 without."""


CACHE_LINE = 64


def _intrinsic(function: Any) -> Any:
    return intrinsic(prefer_literal=True)(function)


@cache
def vector_width() -> int:
    """Floats in a vector register of this CPU: 16 with AVX-512, else 8. Asked once: LLVM takes
    a quarter of a millisecond to answer."""
    features = llvmlite.binding.get_host_cpu_features()
    return 16 if features.get("avx512f") else 8


@_intrinsic
def dots(
    typing: Any, query: Any, key: Any, scores: Any, last: Any, ahead: Any,
    group: Any, size: Any, keys: Any, width: Any,
) -> Any:  # fmt: skip
    """Products of `group` queries with keys [0, last), `size` numbers each.

    Addresses of float32 [group, size], [keys, size] and [group, keys]; `last` is rounded up to
    the vector's `width`, of which `size` and `keys` are multiples. Meanwhile as many keys are
    fetched from `ahead`. The last four are literals.
    """
    shape = [kind.literal_value for kind in (group, size, keys, width)]

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        query, key, scores = _pointers(builder, arguments[:3])
        _emit_dots(builder, query, key, scores, *arguments[3:5], *shape)
        return _nothing()

    return _signature(5, group, size, keys, width), generate


def _share(count: int, part: int, parts: int) -> tuple[int, int]:
    """From where to where one of some about equal parts goes, in whole cache lines."""
    lines = -(-count // CACHE_LINE)
    return CACHE_LINE * (lines * part // parts), CACHE_LINE * (lines * (part + 1) // parts)


def _emit_dots(
    builder: Any, query: Any, key: Any, scores: Any, last: Any, ahead: Any,
    group: int, size: int, keys: int, width: int,
) -> None:  # fmt: skip
    with cgutils.for_range_slice(builder, _int(0), last, _int(width)) as (first, _):
        tile = builder.gep(key, [builder.mul(first, _int(size))])
        behind = builder.mul(first, _int(4 * size))
        (following,) = _pointers(builder, [builder.add(ahead, behind)])
        for g in range(group):
            _fetch(builder, following, *_share(4 * width * size, g, group), NEAREST)
            sums = [ir.Constant(ir.VectorType(_FLOAT, width), None)] * width
            for part in range(0, size, width):
                of_query = _load(builder, query, g * size + part, width)
                for k in range(width):
                    of_key = _load(builder, tile, k * size + part, width)
                    sums[k] = _fma(builder, of_query, of_key, sums[k])
            target = builder.gep(scores, [builder.add(first, _int(g * keys))])
            _store(builder, _sum_each(builder, sums), target, 0)


@_intrinsic
def mix(
    typing: Any, weights: Any, value: Any, mixed: Any, first: Any, last: Any, ahead: Any,
    group: Any, size: Any, keys: Any, width: Any,
) -> Any:  # fmt: skip
    """Add values [first, last), weighted, to the sum of each of `group` queries.

    Addresses of float32 [group, keys], [keys, size] and [group, size]; the last four are
    literals, and `size` is a multiple of `width`. Meanwhile as many values are fetched from
    `ahead`.
    """
    shape = [kind.literal_value for kind in (group, size, keys, width)]

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        weights, value, mixed = _pointers(builder, arguments[:3])
        _emit_mix(builder, weights, value, mixed, *arguments[3:6], *shape)
        return _nothing()

    return _signature(6, group, size, keys, width), generate


def _emit_mix(
    builder: Any, weights: Any, value: Any, mixed: Any, first: Any, last: Any, ahead: Any,
    group: int, size: int, keys: int, width: int,
) -> None:  # fmt: skip
    together = width * max(1, _ACCUMULATORS[width] // group)
    for start in range(0, size, together):
        parts = range(start, min(start + together, size), width)
        places = {(g, part): g * size + part for g in range(group) for part in parts}
        sums = {
            at: cgutils.alloca_once_value(builder, _load(builder, mixed, place, width))
            for at, place in places.items()
        }
        with cgutils.for_range_slice(builder, first, last, _int(1)) as (t, _):
            row = builder.gep(value, [builder.mul(t, _int(size))])
            (following,) = _pointers(builder, [builder.add(ahead, builder.mul(t, _int(4 * size)))])
            last = min(start + together, size)
            _fetch(builder, following, 4 * start, 4 * last, NEAREST)
            loaded = {part: _load(builder, row, part, width) for part in parts}
            for g in range(group):
                weight = builder.gep(weights, [builder.add(t, _int(g * keys))])
                spread = _broadcast(builder, builder.load(weight), width)
                for part in parts:
                    total = builder.load(sums[g, part])
                    builder.store(_fma(builder, spread, loaded[part], total), sums[g, part])
        for at, place in places.items():
            _store(builder, builder.load(sums[at]), mixed, place)


@_intrinsic
def transpose(typing: Any, source: Any, target: Any, size: Any, target_row: Any, width: Any) -> Any:
    """Turn `width` rows of `size` numbers, one behind the other, into `size` rows of `width`.

    Addresses of float32; the target's rows are `target_row` numbers apart. The last three are
    literals, and `size` is a multiple of `width`.
    """
    shape = [kind.literal_value for kind in (size, target_row, width)]

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        _emit_transpose(builder, *_pointers(builder, arguments[:2]), *shape)
        return _nothing()

    return _signature(2, size, target_row, width), generate


def _emit_transpose(
    builder: Any, source: Any, target: Any, size: int, target_row: int, width: int
) -> None:
    for column in range(0, size, width):
        rows = [_load(builder, source, r * size + column, width) for r in range(width)]
        for r, row in enumerate(_turn(builder, rows)):
            _store(builder, row, target, (column + r) * target_row)


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
            rows[i] = _shuffle(builder, *pair, upper)
            rows[i + distance] = _shuffle(builder, *pair, lower)
        distance //= 2
    return rows


@_intrinsic
def multiply(
    typing: Any, left: Any, left_row: Any, right: Any, right_row: Any, inner: Any,
    start: Any, start_row: Any, product: Any, product_row: Any, ahead: Any, ahead_step: Any,
    rows: Any, most_rows: Any, vectors: Any, width: Any,
) -> Any:  # fmt: skip
    """product = start + left @ right, for up to `most_rows` rows of `vectors` * `width` columns.

    Addresses of float32 left [rows, inner], right [inner, columns], start and product
    [rows, columns], each followed by its row's stride in numbers (0 starts all rows alike).
    Meanwhile `ahead_step` bytes from `ahead` on are fetched for each of `inner`. The last three
    are literals; `rows` is any number from 1 to `most_rows`.
    """
    most, *shape = [kind.literal_value for kind in (most_rows, vectors, width)]

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        _emit_multiply(builder, arguments[:11], arguments[11], most, *shape)
        return _nothing()

    return _signature(12, most_rows, vectors, width), generate


def _emit_multiply(
    builder: Any, given: Any, rows: Any, most: int, vectors: int, width: int
) -> None:
    """One piece of code for each number of rows, so that their sums stay in registers."""
    done = builder.append_basic_block("multiplied")
    choice = builder.switch(rows, done)
    for count in range(1, most + 1):
        block = builder.append_basic_block(f"multiply_{count}")
        choice.add_case(_int(count), block)
        builder.position_at_end(block)
        _emit_product(builder, given, count, vectors, width)
        builder.branch(done)
    builder.position_at_end(done)


def _emit_product(builder: Any, given: Any, rows: int, vectors: int, width: int) -> None:
    left_row, right_row, inner, start_row, product_row = (given[i] for i in (1, 3, 4, 6, 8))
    left, right, start, product = _pointers(builder, [given[i] for i in (0, 2, 5, 7)])
    ahead = builder.inttoptr(given[9], ir.IntType(8).as_pointer())
    columns = range(0, vectors * width, width)
    lefts = [builder.gep(left, [builder.mul(_int(r), left_row)]) for r in range(rows)]
    sums = [_start_sums(builder, start, start_row, r, columns, width) for r in range(rows)]
    with cgutils.for_range_slice(builder, _int(0), inner, _int(1)) as (k, _):
        line = builder.gep(right, [builder.mul(k, right_row)])
        loaded = [_load(builder, line, column, width) for column in columns]
        following = builder.gep(ahead, [builder.mul(k, given[10])])
        _fetch(builder, following, 0, 4 * len(columns) * width, SECOND)
        at = k
        for r in range(rows):
            number = _broadcast(builder, builder.load(builder.gep(lefts[r], [at])), width)
            added = [
                _fma(builder, number, vector, builder.load(total))
                for vector, total in zip(loaded, sums[r], strict=True)
            ]
            *added, at = _in_this_order(builder, [*added, at])
            for vector, total in zip(added, sums[r], strict=True):
                builder.store(vector, total)
    for r in range(rows):
        line = builder.gep(product, [builder.mul(_int(r), product_row)])
        for column, total in zip(columns, sums[r], strict=True):
            _store(builder, builder.load(total), line, column)


def _start_sums(
    builder: Any, start: Any, start_row: Any, row: int, columns: range, width: int
) -> list[Any]:
    line = builder.gep(start, [builder.mul(_int(row), start_row)])
    return [
        cgutils.alloca_once_value(builder, _load(builder, line, column, width))
        for column in columns
    ]


def _in_this_order(builder: Any, values: list[Any]) -> list[Any]:
    """The values as they are, known only once all that was to be computed before them is.

    Left alone, LLVM loads a number for every row first and runs out of registers for the sums:
    eleven rows then take twice as long as they should.
    """
    kinds = [value.type for value in values]
    if not llvmlite.binding.get_process_triple().startswith("x86_64"):
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


NEAREST, SECOND = 3, 2
"""Of a core's caches, as LLVM counts them."""


def _fetch(builder: Any, base: Any, start: int, stop: int, cache: int) -> None:
    """Ask for the bytes [start, stop) behind an address to be brought into a cache."""
    byte, int32 = ir.IntType(8).as_pointer(), ir.IntType(32)
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(ir.VoidType(), [byte, int32, int32, int32]),
        "llvm.prefetch.p0i8",
    )
    reading, level, data = (ir.Constant(int32, n) for n in (0, cache, 1))
    for line in range(start, stop, CACHE_LINE):
        place = builder.gep(builder.bitcast(base, byte), [_int(line)])
        builder.call(function, [place, reading, level, data])


@_intrinsic
def exponential(typing: Any, x: Any) -> Any:
    """e ** x as float32 for x <= 0, within 3 units in the last place; 0 from -87 on."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return emit_exponential(builder, arguments[0])

    return types.float32(types.float32), generate


def emit_exponential(builder: Any, x: Any) -> Any:
    """2 ** n times a polynomial on half an octave either side (Cephes' coefficients).

    `x` is a number or a vector of them, at most 0.
    """
    lowest = _constant(x.type, -87.0)
    bounded = _higher(builder, x, lowest)
    octaves = _fma(builder, bounded, _constant(x.type, 1.44269504), _constant(x.type, -0.5))
    whole = builder.fptosi(octaves, _like(x.type, ir.IntType(32)))
    n = builder.sitofp(whole, x.type)
    r = _fma(builder, n, _constant(x.type, -0.693359375), bounded)
    r = _fma(builder, n, _constant(x.type, 2.12194440e-4), r)
    p = _constant(x.type, _EXPONENTIAL[0])
    for coefficient in _EXPONENTIAL[1:]:
        p = _fma(builder, p, r, _constant(x.type, coefficient))
    linear = builder.fadd(r, _constant(x.type, 1.0))
    biased = builder.add(whole, _constant(whole.type, 127))
    power = builder.bitcast(builder.shl(biased, _constant(whole.type, 23)), x.type)
    result = builder.fmul(_fma(builder, p, builder.fmul(r, r), linear), power)
    inside = builder.fcmp_ordered(">", x, lowest)
    return builder.select(inside, result, _constant(x.type, 0.0))


_EXPONENTIAL = (
    1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
    5.0000001201e-1,
)  # fmt: skip


@_intrinsic
def gate(typing: Any, pairs: Any, product: Any, width: Any) -> Any:
    """product = silu(gate) * up, for `width` gates followed by as many ups.

    Addresses of float32; `width` is a literal.
    """
    lanes = width.literal_value

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        pairs, product = _pointers(builder, arguments[:2])
        gates, ups = (_load(builder, pairs, n * lanes, lanes) for n in range(2))
        zero, one = (_constant(gates.type, n) for n in (0.0, 1.0))
        falling = _higher(builder, gates, builder.fsub(zero, gates))
        small = emit_exponential(builder, builder.fsub(zero, falling))
        above = builder.select(builder.fcmp_ordered("<", gates, zero), small, one)
        silu = builder.fdiv(builder.fmul(gates, above), builder.fadd(one, small))
        _store(builder, builder.fmul(silu, ups), product, 0)
        return _nothing()

    return _signature(2, width), generate


@_intrinsic
def soften(
    typing: Any, scores: Any, first: Any, last: Any, highest: Any, total: Any, mixed: Any,
    keys: Any, size: Any, width: Any,
) -> Any:  # fmt: skip
    """Turn one query's scores into weights, and its state so far to the new maximum.

    Addresses of float32 [keys], of the highest score and the sum of weights so far, and of
    [size], what these weights have mixed. Scores outside [first, last) become 0. The last three
    are literals; `keys` and `size` are multiples of `width`.
    """
    shape = [kind.literal_value for kind in (keys, size, width)]

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        scores, highest, total, mixed = _pointers(builder, arguments[:1] + arguments[3:6])
        _emit_soften(builder, scores, *arguments[1:3], highest, total, mixed, *shape)
        return _nothing()

    return _signature(6, keys, size, width), generate


def _emit_soften(
    builder: Any, scores: Any, first: Any, last: Any, highest: Any, total: Any, mixed: Any,
    keys: int, size: int, width: int,
) -> None:  # fmt: skip
    rows = [
        _only(builder, _load(builder, scores, t, width), t, first, last)
        for t in range(0, keys, width)
    ]
    before = builder.load(highest)
    top = _over_all(builder, rows, _higher)
    top = _higher(builder, top, before)
    spread = _broadcast(builder, top, width)
    weights = [emit_exponential(builder, builder.fsub(row, spread)) for row in rows]
    for t, weight in zip(range(0, keys, width), weights, strict=True):
        _store(builder, weight, scores, t)
    added = _over_all(builder, weights, lambda b, one, other: b.fadd(one, other))
    with builder.if_then(builder.fcmp_ordered(">", top, before)):
        shrink = emit_exponential(builder, builder.fsub(before, top))
        builder.store(top, highest)
        builder.store(builder.fmul(shrink, builder.load(total)), total)
        factor = _broadcast(builder, shrink, width)
        for d in range(0, size, width):
            _store(builder, builder.fmul(factor, _load(builder, mixed, d, width)), mixed, d)
    builder.store(builder.fadd(builder.load(total), added), total)


def _only(builder: Any, vector: Any, start: int, first: Any, last: Any) -> Any:
    """The lanes whose place, from `start` on, is in [first, last); the others at -infinity."""
    int32, width = ir.IntType(32), vector.type.count
    places = ir.Constant(ir.VectorType(int32, width), list(range(start, start + width)))
    begin, end = (_broadcast(builder, builder.trunc(n, int32), width) for n in (first, last))
    inside = builder.and_(
        builder.icmp_signed(">=", places, begin), builder.icmp_signed("<", places, end)
    )
    return builder.select(inside, vector, _constant(vector.type, float("-inf")))


def _over_all(builder: Any, vectors: list[Any], combine: Any) -> Any:
    """One number out of all lanes of some vectors."""
    while len(vectors) > 1:
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [combine(builder, one, other) for one, other in pairs]
    (vector,) = vectors
    width = vector.type.count
    distance = width // 2
    while distance:
        lanes = [lane ^ distance for lane in range(width)]
        vector = combine(builder, vector, _shuffle(builder, vector, vector, lanes))
        distance //= 2
    return builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))


def _higher(builder: Any, one: Any, other: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", one, other), one, other)


def _like(kind: Any, element: Any) -> Any:
    return ir.VectorType(element, kind.count) if isinstance(kind, ir.VectorType) else element


def _constant(kind: Any, value: float) -> Any:
    if isinstance(kind, ir.VectorType):
        return ir.Constant(kind, [value] * kind.count)
    return ir.Constant(kind, value)


@_intrinsic
def take_ticket(typing: Any, counter: Any) -> Any:
    """The int64 at this address, which becomes one more: each thread gets another number."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        address = builder.inttoptr(arguments[0], _INT.as_pointer())
        return builder.atomic_rmw("add", address, _int(1), "monotonic")

    return types.int64(types.int64), generate


@_intrinsic
def copy_bytes(typing: Any, target: Any, source: Any, count: Any) -> Any:
    """Copy `count` bytes from one address to another."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        to, of = (builder.inttoptr(a, _FLOAT.as_pointer()) for a in arguments[:2])
        cgutils.raw_memcpy(builder, to, of, arguments[2], _int(1))
        return _nothing()

    return types.boolean(types.int64, types.int64, types.int64), generate


@_intrinsic
def float_at(typing: Any, address: Any, index: Any) -> Any:
    """The float32 that many places behind an address."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.load(builder.gep(*_place(builder, arguments, _FLOAT)))

    return types.float32(types.int64, types.int64), generate


@_intrinsic
def put_float(typing: Any, address: Any, index: Any, value: Any) -> Any:
    """Store a float32 that many places behind an address."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        builder.store(arguments[2], builder.gep(*_place(builder, arguments[:2], _FLOAT)))
        return _nothing()

    return types.boolean(types.int64, types.int64, types.float32), generate


@_intrinsic
def int_at(typing: Any, address: Any, index: Any) -> Any:
    """The int64 that many places behind an address."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.load(builder.gep(*_place(builder, arguments, _INT)))

    return types.int64(types.int64, types.int64), generate


def _place(builder: Any, arguments: Any, kind: Any) -> tuple[Any, list[Any]]:
    return builder.inttoptr(arguments[0], kind.as_pointer()), [arguments[1]]


def _signature(integers: int, *literals: Any) -> Any:
    return types.boolean(*[types.int64] * integers, *literals)


def _pointers(builder: Any, addresses: Any) -> list[Any]:
    return [builder.inttoptr(address, _FLOAT.as_pointer()) for address in addresses]


def _nothing() -> Any:
    return ir.Constant(ir.IntType(1), 0)


def _int(value: int) -> Any:
    return ir.Constant(_INT, value)


def _load(builder: Any, base: Any, offset: int, width: int) -> Any:
    return builder.load(_vector_at(builder, base, offset, width), align=4)


def _store(builder: Any, vector: Any, base: Any, offset: int) -> None:
    builder.store(vector, _vector_at(builder, base, offset, vector.type.count), align=4)


def _vector_at(builder: Any, base: Any, offset: int, width: int) -> Any:
    place = builder.gep(base, [_int(offset)])
    return builder.bitcast(place, ir.VectorType(_FLOAT, width).as_pointer())


def _fma(builder: Any, left: Any, right: Any, added: Any) -> Any:
    kind = left.type
    name = f"v{kind.count}f32" if isinstance(kind, ir.VectorType) else "f32"
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(kind, [kind] * 3), f"llvm.fma.{name}"
    )
    return builder.call(function, [left, right, added])


def _broadcast(builder: Any, number: Any, width: int) -> Any:
    vector = ir.VectorType(number.type, width)
    one = builder.insert_element(
        ir.Constant(vector, ir.Undefined), number, ir.Constant(ir.IntType(32), 0)
    )
    return _shuffle(builder, one, one, [0] * width)


def _sum_each(builder: Any, vectors: list[Any]) -> Any:
    """A vector whose lane l is the sum of vector l: a butterfly, half as many at every level."""
    width = len(vectors)
    distance = width // 2
    while distance:
        lanes = range(width)
        kept = [lane + width if lane & distance else lane for lane in lanes]
        crossed = [
            lane + width - distance if lane & distance else lane + distance for lane in lanes
        ]
        vectors = [
            builder.fadd(
                _shuffle(builder, vectors[i], vectors[i + distance], kept),
                _shuffle(builder, vectors[i], vectors[i + distance], crossed),
            )
            for i in range(distance)
        ]
        distance //= 2
    return vectors[0]


def _shuffle(builder: Any, left: Any, right: Any, lanes: list[int]) -> Any:
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)
    return builder.shuffle_vector(left, right, mask)
