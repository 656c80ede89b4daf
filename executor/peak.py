"""The machine's own limits, measured: matrix products and memory, on the threads in use.

It is done in a process that has just run a job, and must not be what that process needed most
memory for: everything is laid into one piece of memory, one after the other, and what is read is
put out of the caches before, so that it need not be more than they hold.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from executor.compiled.eviction import can_evict, evict
from executor.linear import FLOAT32, Packing, PanelLinear, can_prepack, packed_linear
from executor.memory import passing
from executor.roofline import MachinePeak

Shape = tuple[int, int, int]
"""Rows, inner, columns of a matrix product."""

SHAPES: tuple[Shape, ...] = (
    (2048, 2048, 1024),
    (1024, 1024, 1024),
    (512, 2048, 1024),
    (256, 1536, 576),
)
"""The large ones show the machine's peak, the last a small model's linear."""

_LEAST_READ_BYTES, _THREAD_READ_BYTES = 32 << 20, 4 << 20
"""In all, and for each thread: much more than is read while threads are set to work."""
_CACHED_READ_BYTES = 256 << 20
"""Where nothing can be put out of the caches: more than most hold."""
_REPEATS = 7


def measure_peak(
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    packing: Packing = FLOAT32,
    shapes: tuple[Shape, ...] = SHAPES,
    read_bytes: int | None = None,
    repeats: int = _REPEATS,
) -> MachinePeak:
    """Takes a second or two and 50 MB on two cores; torch's thread count is left as it is."""
    device = torch.device(device)
    read_bytes = read_bytes or _read_bytes(device)
    largest = max(dtype.itemsize * sum(_counts(shape)) for shape in shapes)
    space = _space(max(read_bytes, largest), device)
    bandwidth = _read_rate(space[:read_bytes].view(torch.float32), repeats)
    packs = device.type == "cpu" and can_prepack()
    plain: list[float] = []
    packed: list[float] = []
    for shape in shapes:
        operands = _operands(shape, space.view(dtype))
        plain += _plain_rates(*operands, repeats)
        if packs:
            packed += _packed_rates(*operands, packing, repeats)
    return MachinePeak(
        flops=max(plain),
        median_flops=statistics.median(plain),
        bandwidth=bandwidth,
        packed_flops=max(packed, default=None),
    )


def _space(size: int, device: torch.device) -> Tensor:
    if device.type == "cpu":
        return passing(size)
    return torch.empty(size, dtype=torch.uint8, device=device)


def _read_bytes(device: torch.device) -> int:
    if device.type == "cpu" and can_evict():
        return max(_LEAST_READ_BYTES, _THREAD_READ_BYTES * torch.get_num_threads())
    return _CACHED_READ_BYTES


@torch.inference_mode()
def _read_rate(data: Tensor, repeats: int) -> float:
    data.fill_(1)
    evicts = data.device.type == "cpu" and can_evict()
    prepare = partial(evict, data.data_ptr(), data.nbytes) if evicts else None
    return data.nbytes / min(_timed(data.sum, repeats, prepare))


def _counts(shape: Shape) -> list[int]:
    """Numbers in what is multiplied, and in the product."""
    rows, inner, columns = shape
    return [rows * inner, inner * columns, rows * columns]


def _operands(shape: Shape, space: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What is multiplied, and where the product goes, side by side in `space`."""
    rows, inner, columns = shape
    numbers = space[: sum(_counts(shape))].normal_()
    left, right, out = torch.split(numbers, _counts(shape))
    return left.view(rows, inner), right.view(inner, columns), out.view(rows, columns)


@torch.inference_mode()
def _plain_rates(left: Tensor, right: Tensor, out: Tensor, repeats: int) -> list[float]:
    """FLOP/s of torch's own product."""
    seconds = _timed(lambda: torch.mm(left, right, out=out), repeats)
    return [2.0 * left.shape[1] * out.numel() / spent for spent in seconds]


@torch.inference_mode()
def _packed_rates(
    left: Tensor, right: Tensor, out: Tensor, packing: Packing, repeats: int
) -> list[float]:
    """FLOP/s of a product with a packed weight."""
    linear = packed_linear(right.T, None, packing, stays=False)
    if isinstance(linear, PanelLinear):
        seconds = _timed(partial(linear.panels.multiply, left, out), repeats)
    else:
        seconds = _timed(partial(linear, left), repeats)
    return [2.0 * left.shape[1] * out.numel() / spent for spent in seconds]


def _timed(
    work: Callable[[], Tensor], repeats: int, prepare: Callable[[], None] | None = None
) -> list[float]:
    """Seconds of each repeat, after one that does not count; what `prepare` takes does not."""
    _finish(work())
    seconds = []
    for _ in range(repeats):
        if prepare is not None:
            prepare()
        started = time.perf_counter()
        _finish(work())
        seconds.append(time.perf_counter() - started)
    return seconds


def _finish(result: Tensor) -> None:
    if result.is_cuda:
        torch.cuda.synchronize()
