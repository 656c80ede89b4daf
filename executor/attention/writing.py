"""New keys and values to their places in the cache, on all threads: a copy a token and head."""

from __future__ import annotations

import ctypes
from functools import cache

import torch
from numba import carray
from torch import Tensor

from executor.compiled import team
from executor.compiled.access import copy_bytes, int_at, take_ticket
from executor.compiled.faults import expect, works
from executor.compiled.halves import narrow
from executor.compiled.kernel import compiled, revision

_AT_ONCE = 16
"""Tokens that a thread takes at a time."""


class _Rows(ctypes.Structure):
    """Keys, or values."""

    _fields_ = (
        ("source", ctypes.c_int64),  # [T, Hkv, D] at, numbers of a head contiguous
        ("row_bytes", ctypes.c_int64),  # its strides
        ("head_bytes", ctypes.c_int64),
        ("target", ctypes.c_int64),  # [N, Hkv, block_size, D] at, contiguous
        ("token_bytes", ctypes.c_int64),
        ("rounded", ctypes.c_int64),  # numbers of a token: float32 to bfloat16; 0: copied as it is
    )


class _Arguments(ctypes.Structure):
    _fields_ = (
        ("keys", _Rows),
        ("values", _Rows),
        ("places", ctypes.c_int64),  # [T, 2] int64: block and offset of each token
        ("count", ctypes.c_int64),  # T
        ("kv_heads", ctypes.c_int64),
        ("block_size", ctypes.c_int64),
        ("counter", ctypes.c_int64),  # int64, 0 at the beginning
    )


class Writer:
    """Copies a step's keys and values to `places` [T, 2] int64, block and offset of each."""

    def __init__(self, places: Tensor) -> None:
        self._places = places.contiguous()
        self._counter = ctypes.c_int64()
        self._given = _Arguments(
            places=self._places.data_ptr(),
            count=len(places),
            counter=ctypes.addressof(self._counter),
        )

    def write(self, key: Tensor, keys: Tensor, value: Tensor, values: Tensor) -> None:
        """Key [T, Hkv, Dk] and value [T, Hkv, Dv] to caches [N, Hkv, block_size, D]."""
        given = self._given
        _, given.kv_heads, given.block_size, _ = keys.shape
        for rows, source, target in ((given.keys, key, keys), (given.values, value, values)):
            row, head, _ = source.stride()
            size = source.element_size()
            rows.source, rows.target = source.data_ptr(), target.data_ptr()
            rows.row_bytes, rows.head_bytes = row * size, head * size
            rows.token_bytes = source.shape[2] * target.element_size()
            rows.rounded = 0 if source.dtype == target.dtype else source.shape[2]
        self._counter.value = 0
        team.run_together(_kernel(), ctypes.addressof(given))


def can_copy(rows: Tensor, cache: Tensor) -> bool:
    """Whether rows lie in the cache as they are, or rounded from float32 to bfloat16."""
    rounded = (rows.dtype, cache.dtype) == (torch.float32, torch.bfloat16)
    kind = rounded or rows.dtype == cache.dtype
    if cache.device.type != "cpu" or rows.stride(2) != 1 or not kind:
        return False
    return works("writing to the cache", "torch's indexing", _check)


def _check() -> None:
    """Raises if other numbers are in the cache than torch puts there."""
    rows = torch.randn(_AT_ONCE + 1, 2, 5, generator=torch.Generator().manual_seed(0))
    places = torch.arange(2 * len(rows)).view(-1, 2) % torch.tensor([3, 7])
    for stored in (torch.float32, torch.bfloat16):
        written, expected = torch.zeros(2, 2, 3, 2, 7, 5, dtype=stored)
        Writer(places).write(rows, written[0], 2 * rows, written[1])
        for factor, place in zip((1, 2), expected, strict=True):
            place[places[:, 0], :, places[:, 1]] = (factor * rows).to(stored)
        expect(written, expected)


@cache
def _kernel() -> int:
    code = revision()

    def kernel(pointer):  # type: ignore[no-untyped-def]
        a = carray(pointer, 1)[0]
        first = take_ticket(a.counter) * _AT_ONCE
        while code >= 0 and first < a.count:
            for row in range(first, min(first + _AT_ONCE, a.count)):
                block, offset = int_at(a.places, 2 * row), int_at(a.places, 2 * row + 1)
                for head in range(a.kv_heads):
                    token = (block * a.kv_heads + head) * a.block_size + offset
                    for rows in (a.keys, a.values):
                        source = rows.source + row * rows.row_bytes + head * rows.head_bytes
                        target = rows.target + token * rows.token_bytes
                        if rows.rounded > 0:
                            narrow(source, target, rows.rounded)
                        else:
                            copy_bytes(target, source, rows.token_bytes)
            first = take_ticket(a.counter) * _AT_ONCE

    return compiled(kernel, _Arguments)
