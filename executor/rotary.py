"""Rotary positions of queries and keys in one pass, where torch takes ten.

Su et al. 2021, in the form that turns the two halves of a head against each other.
"""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
import torch
from numba import carray
from torch import Tensor

from executor.compiled import team
from executor.compiled.access import float_at, put_float, take_ticket
from executor.compiled.faults import expect, works
from executor.compiled.kernel import compiled, jit, revision
from executor.compiled.rows import normalize
from executor.compiled.series import Call
from executor.norm import FusedRmsNorm

_AT_ONCE = 4
"""Rows that a thread takes at a time."""


class _Heads(ctypes.Structure):
    """Queries, or keys."""

    _fields_ = (
        ("source", ctypes.c_int64),  # [H, T, D] at, numbers of a head contiguous
        ("head", ctypes.c_int64),  # its strides, in numbers
        ("row", ctypes.c_int64),
        ("target", ctypes.c_int64),  # [T, H, D] at, contiguous
        ("count", ctypes.c_int64),  # H
        ("weight", ctypes.c_int64),  # [D] at: heads are normalized first (`norm`); 0: are not
        ("epsilon", ctypes.c_double),
    )


class _Arguments(ctypes.Structure):
    _fields_ = (
        ("queries", _Heads),
        ("keys", _Heads),
        ("cosines", ctypes.c_int64),  # [T, D] at
        ("sines", ctypes.c_int64),  # [T, D] at
        ("rows", ctypes.c_int64),  # T
        ("size", ctypes.c_int64),  # D
        ("counter", ctypes.c_int64),  # int64, 0 at the beginning
    )


def can_rotate(query: Tensor, key: Tensor, cosines: Tensor, sines: Tensor) -> bool:
    """Whether `rotate` is made for these."""
    tensors = query, key, cosines, sines
    if any(t.dtype != torch.float32 or t.device.type != "cpu" for t in tensors):
        return False
    if not all(t.dim() == 4 and t.shape[0] == 1 for t in (query, key)):
        return False
    shapes = [(1, *x.shape[2:]) for x in (query, key)] + [sines.shape]
    return (
        all(shape == cosines.shape for shape in shapes)
        and cosines.shape[2] % 2 == 0
        and query.stride(3) == key.stride(3) == 1
        and cosines.is_contiguous()
        and sines.is_contiguous()
        and works("rotary positions", "the model's own function", _check)
    )


def _check() -> None:
    """Raises if the kernel answers otherwise than torch."""
    generator = torch.Generator().manual_seed(0)
    heads, angles = (torch.randn(n, _AT_ONCE + 1, 10, generator=generator) for n in (3, 2))
    query, key, (cosines, sines) = heads[None, :2], heads[None, 2:], angles[:, None]
    for x, turned in zip((query, key), rotate(query, key, cosines, sines), strict=True):
        halves = torch.cat([-x[..., 5:], x[..., :5]], dim=-1)
        expect(turned, x * cosines + halves * sines)


def rotate(query: Tensor, key: Tensor, cosines: Tensor, sines: Tensor) -> tuple[Tensor, Tensor]:
    """x * cos + (-second half of x, first half of x) * sin, for x [1, H, T, D], both [1, T, D]."""
    _, rows, size = cosines.shape
    counter = ctypes.c_int64()
    given = _Arguments(
        cosines=cosines.data_ptr(),
        sines=sines.data_ptr(),
        rows=rows,
        size=size,
        counter=ctypes.addressof(counter),
    )
    rotated = [x.new_empty(rows, x.shape[1], size) for x in (query, key)]
    for heads, x, target in zip((given.queries, given.keys), (query, key), rotated, strict=True):
        heads.source, heads.target = x.data_ptr(), target.data_ptr()
        _, heads.head, heads.row, _ = x.stride()
        heads.count = x.shape[1]
    team.run_together(_kernel(), ctypes.addressof(given))
    queries, keys = (x.transpose(0, 1)[None] for x in rotated)
    return queries, keys


class HeadRotation:
    """Turns the queries and keys of rows that have them side by side: [Hq + Hkv + ..., D] each.

    Where a family normalizes its heads before, it does that as well.
    """

    def __init__(
        self, queries: int, keys: int, size: int, norms: tuple[FusedRmsNorm, FusedRmsNorm] | None
    ) -> None:
        self._counter = ctypes.c_int64()
        self._given = given = _Arguments(size=size, counter=ctypes.addressof(self._counter))
        given.queries.count, given.keys.count = queries, keys
        given.queries.head = given.keys.head = size
        self._norms = norms
        for heads, norm in zip((given.queries, given.keys), norms or (), strict=False):
            heads.weight, heads.epsilon = norm.weight.data_ptr(), norm.epsilon
        self.call = Call(_kernel(), ctypes.addressof(given))

    def prepare(
        self, source: int, width: int, targets: tuple[int, int], angles: tuple[int, int], rows: int
    ) -> None:
        """What `call` turns next.

        Args:
            source: address of [rows, width].
            targets: addresses of [rows, Hq, D] and [rows, Hkv, D].
            angles: addresses of cosines and sines, [rows, D] each.
        """
        given = self._given
        given.queries.source = source
        given.keys.source = source + 4 * given.queries.count * given.size
        given.queries.row = given.keys.row = width
        given.queries.target, given.keys.target = targets
        given.cosines, given.sines = angles
        given.rows = rows
        self._counter.value = 0


@cache
def _kernel() -> int:
    code = revision()

    def kernel(pointer):  # type: ignore[no-untyped-def]
        a = carray(pointer, 1)[0]
        first = take_ticket(a.counter) * _AT_ONCE
        while code >= 0 and first < a.rows:
            for row in range(first, min(first + _AT_ONCE, a.rows)):
                angles = 4 * row * a.size
                for heads in (a.queries, a.keys):
                    for head in range(heads.count):
                        source = heads.source + 4 * (head * heads.head + row * heads.row)
                        target = heads.target + 4 * (row * heads.count + head) * a.size
                        if heads.weight != 0:
                            epsilon = np.float32(heads.epsilon)
                            normalize(source, heads.weight, target, a.size, epsilon)
                            source = target
                        _turn(source, a.cosines + angles, a.sines + angles, target, a.size // 2)
            first = take_ticket(a.counter) * _AT_ONCE

    return compiled(kernel, _Arguments)


@jit
def _turn(head: int, cosines: int, sines: int, target: int, half: int) -> None:
    for d in range(half):
        one, other = float_at(head, d), float_at(head, d + half)
        put_float(target, d, one * float_at(cosines, d) - other * float_at(sines, d))
        put_float(
            target, d + half,
            other * float_at(cosines, d + half) + one * float_at(sines, d + half),
        )  # fmt: skip
