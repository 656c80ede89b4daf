"""The pieces of the attention kernel by themselves."""

from __future__ import annotations

import numba
import numpy as np
import pytest
import torch

from executor.attention.base import LayerCache, Slots
from executor.attention.kernel import fitting_width
from executor.attention.units import Cutting
from executor.compiled import team
from executor.compiled.access import int_at, take_ticket
from executor.compiled.exponential import exponential, power_of_two
from executor.compiled.softmax import soften_columns


@numba.njit  # type: ignore[untyped-decorator]
def exponentials(values: np.ndarray) -> np.ndarray:
    result = np.empty_like(values)
    for i in range(values.size):
        result[i] = exponential(values[i])
    return result


@numba.njit  # type: ignore[untyped-decorator]
def powers_of_two(values: np.ndarray) -> np.ndarray:
    result = np.empty_like(values)
    for i in range(values.size):
        result[i] = power_of_two(values[i])
    return result


@numba.njit  # type: ignore[untyped-decorator]
def soften_all(
    scores: np.ndarray, starts: np.ndarray, ends: np.ndarray, state: np.ndarray, position: int
) -> None:
    soften_columns(
        scores.ctypes.data, position, starts.ctypes.data, ends.ctypes.data,
        state[0].ctypes.data, state[1].ctypes.data, state[2].ctypes.data, 8, 2, 1, 8,
    )  # fmt: skip


def test_exponential_is_within_three_units_in_the_last_place() -> None:
    values = np.concatenate([np.linspace(-86.9, 0, 400_001), -np.logspace(-9, 0, 10_001)]).astype(
        np.float32
    )
    exact = np.exp(values.astype(np.float64))
    units = np.abs(exponentials(values) - exact) / np.spacing(exact.astype(np.float32))
    assert units.max() <= 3
    assert exponentials(np.zeros(1, np.float32))[0] == 1


def test_exponential_of_the_very_small_is_zero() -> None:
    values = np.array([-87.5, -1e4, -1e30, -np.inf], dtype=np.float32)
    assert exponentials(values).tolist() == [0, 0, 0, 0]


def test_power_of_two_is_within_two_units_in_the_last_place() -> None:
    values = np.concatenate([np.linspace(-125.4, 0, 400_001), -np.logspace(-9, 0, 10_001)]).astype(
        np.float32
    )
    exact = np.exp2(values.astype(np.float64))
    units = np.abs(powers_of_two(values) - exact) / np.spacing(exact.astype(np.float32))
    assert units.max() <= 2
    assert powers_of_two(np.zeros(1, np.float32))[0] == 1


def test_power_of_two_of_the_very_small_is_next_to_nothing() -> None:
    values = np.array([-126, -1e4, -1e30, -np.inf], dtype=np.float32)
    assert powers_of_two(values).max() < 1.2e-38


def test_columns_are_softened_over_tiles_as_at_once() -> None:
    numbers = np.random.default_rng(0)
    scores = numbers.normal(scale=5, size=(16, 16)).astype(np.float32)
    starts = numbers.integers(0, 6, 16).astype(np.int32)
    ends = numbers.integers(7, 17, 16).astype(np.int32)
    state = np.array([[-1e30] * 16, [0] * 16, [0] * 16], dtype=np.float32)
    tiles = [scores[:8].copy(), scores[8:].copy()]
    shrinks = []
    for position, tile in zip((0, 8), tiles, strict=True):
        soften_all(tile, starts, ends, state, position)
        shrinks.append(state[2].copy())
    weights = np.concatenate([tiles[0] * shrinks[1], tiles[1]]) / state[1]
    keys = np.arange(16)[:, None]
    exact = np.where((keys >= starts) & (keys < ends), np.exp2(scores.astype(np.float64)), 0)
    np.testing.assert_allclose(weights, exact / exact.sum(axis=0), rtol=3e-6, atol=1e-30)


@pytest.mark.parametrize("threads", [1, 2, 64])
@pytest.mark.parametrize("rows", [2, 3, 11, 64, 100, 128, 1000])
def test_pieces_are_no_larger_than_a_unit_may_be(rows: int, threads: int) -> None:
    cutting = Cutting(most_rows=64, group=3, strip=32, kv_heads=3, threads=threads)
    assert -(-rows // cutting.pieces(rows)) <= 64
    assert 1 <= cutting.pieces(rows) <= rows


def test_pieces_fill_their_strips_and_keep_all_threads_at_work() -> None:
    cutting = Cutting(most_rows=64, group=3, strip=32, kv_heads=3, threads=2)
    assert cutting.pieces(128) == 4  # of 96 query heads, and 12 units in all
    assert cutting.pieces(64) == 2
    assert cutting.pieces(1) == 1


@pytest.mark.parametrize(
    ("rows", "groups", "threads", "expected"),
    [(128, 1, 2, 2), (129, 1, 2, 4), (64, 2, 2, 1), (64, 1, 2, 2), (10, 1, 2, 1), (64, 1, 3, 1),
     (64, 1, 64, 6)],
)  # fmt: skip
def test_groups_are_cut_for_every_thread_alike(
    rows: int, groups: int, threads: int, expected: int
) -> None:
    cutting = Cutting(most_rows=64, group=3, strip=32, kv_heads=3, threads=threads)
    assert cutting.group_pieces(rows, groups) == expected


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [((3, 8, 8, 8), {8}), ((3, 64, 64, 64), {8, 16}), ((3, 8, 6, 8), {None}),
     ((17, 64, 64, 64), {None}), ((1, 64, 64, 4), {None})],
)  # fmt: skip
def test_widths_fit_their_sizes(
    sizes: tuple[int, int, int, int], expected: set[int | None]
) -> None:
    assert fitting_width(*sizes) in expected


def test_every_thread_of_the_team_takes_other_tickets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    calls = np.zeros(4, np.int64)
    seen = np.zeros(1000, np.int64)
    calls[1], calls[2] = seen.size, seen.ctypes.data

    @numba.cfunc("void(int64)")  # type: ignore[untyped-decorator]
    def mark(address: int) -> None:
        ticket = take_ticket(address)
        while ticket < int_at(address, 1):
            take_ticket(int_at(address, 2) + 8 * ticket)
            ticket = take_ticket(address)
        take_ticket(address + 24)

    team.run_together(mark.address, calls.ctypes.data)
    assert seen.tolist() == [1] * 1000
    assert calls[3] == (4 if team.openmp() is not None else 1)


def test_without_openmp_one_call_does_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(team, "openmp", lambda: None)

    @numba.cfunc("void(int64)")  # type: ignore[untyped-decorator]
    def count(address: int) -> None:
        take_ticket(address)

    calls = np.zeros(1, np.int64)
    team.run_together(count.address, calls.ctypes.data)
    assert calls.tolist() == [1]


@pytest.mark.parametrize(
    ("dtype", "stored"),
    [
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.bfloat16),
        (torch.float32, torch.bfloat16),
        (torch.float32, torch.float16),
    ],
)
@pytest.mark.parametrize("strided", [True, False])
def test_write_equals_indexed_assignment(
    dtype: torch.dtype, stored: torch.dtype, strided: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(7, 5, 2, 4, generator=generator).to(dtype)
    key = rows[:, 3:5, 0] if strided else rows[:, 0].contiguous()
    value = rows[:, 2].transpose(0, 1).contiguous().transpose(0, 1) if strided else rows[:, 2]
    places = torch.tensor([[3, 0], [3, 1], [0, 5], [1, 2], [2, 7], [4, 0], [4, 3]])
    layer = LayerCache(*(torch.zeros(5, 2, 8, 4, dtype=stored) for _ in range(2)))
    layer.write(key, value, Slots(places))
    keys, values = torch.zeros_like(layer.keys), torch.zeros_like(layer.values)
    keys[places[:, 0], :, places[:, 1]] = key.to(stored)
    values[places[:, 0], :, places[:, 1]] = value.to(stored)
    assert torch.equal(layer.keys, keys)
    assert torch.equal(layer.values, values)
