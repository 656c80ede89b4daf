"""The machine's own limits, measured: matrix products and memory, on the threads in use."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from executor.linear import can_prepack, packed_linear
from executor.roofline import MachinePeak

SHAPES = ((2048, 2048, 2048), (1024, 1024, 1024), (512, 2048, 2048), (256, 1536, 576))
"""Rows, inner, columns. Square ones show the machine's peak, the last a small model's linear."""
_READ_BYTES = 256 << 20
_REPEATS = 7


def measure_peak(
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    shapes: tuple[tuple[int, int, int], ...] = SHAPES,
    read_bytes: int = _READ_BYTES,
    repeats: int = _REPEATS,
) -> MachinePeak:
    """Takes a second or two on two cores; torch's thread count is left as it is."""
    device = torch.device(device)
    rates = [rate for shape in shapes for rate in _product_rates(shape, dtype, device, repeats)]
    return MachinePeak(
        flops=max(rates),
        median_flops=statistics.median(rates),
        bandwidth=_read_rate(read_bytes, device, repeats),
        packed_flops=_packed_rate(shapes, dtype, device, repeats),
    )


@torch.inference_mode()
def _product_rates(
    shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device, repeats: int
) -> list[float]:
    rows, inner, columns = shape
    left = torch.randn(rows, inner, device=device).to(dtype)
    right = torch.randn(inner, columns, device=device).to(dtype)
    out = torch.empty(rows, columns, dtype=dtype, device=device)
    work = 2.0 * rows * inner * columns
    seconds = _timed(lambda: torch.mm(left, right, out=out), repeats)
    return [work / spent for spent in seconds]


@torch.inference_mode()
def _packed_rate(
    shapes: tuple[tuple[int, int, int], ...], dtype: torch.dtype, device: torch.device, repeats: int
) -> float | None:
    """The best; None where weights are not packed."""
    if device.type != "cpu" or not can_prepack(dtype):
        return None
    rates = []
    for rows, inner, columns in shapes:
        linear = packed_linear(torch.randn(columns, inner).to(dtype), None)
        left = torch.randn(rows, inner).to(dtype)
        seconds = min(_timed(partial(linear, left), repeats))
        rates.append(2.0 * rows * inner * columns / seconds)
    return max(rates)


@torch.inference_mode()
def _read_rate(size: int, device: torch.device, repeats: int) -> float:
    data = torch.ones(size // 4, dtype=torch.float32, device=device)
    return size / min(_timed(data.sum, repeats))


def _timed(work: Callable[[], Tensor], repeats: int) -> list[float]:
    """Seconds of each repeat, after one that does not count."""
    _finish(work())
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        _finish(work())
        seconds.append(time.perf_counter() - started)
    return seconds


def _finish(result: Tensor) -> None:
    if result.is_cuda:
        torch.cuda.synchronize()
