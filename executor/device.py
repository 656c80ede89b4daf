"""Which device, number type and thread count to compute with, and why."""

from __future__ import annotations

import os
from dataclasses import dataclass

import psutil
import torch

from executor.errors import EngineError
from executor.settings import EngineSettings

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePlan:
    """A decision and, for each part of it, the reason in words."""

    device: torch.device
    device_reason: str
    dtype: torch.dtype
    dtype_reason: str
    num_threads: int
    threads_reason: str


def plan_device(settings: EngineSettings, checkpoint_dtype: torch.dtype | None) -> DevicePlan:
    """Decide for a model stored as `checkpoint_dtype` (None: not known yet).

    Raises:
        EngineError: the asked-for device or dtype does not exist here.
    """
    device, device_reason = _device(settings)
    dtype, dtype_reason = _dtype(settings, device, checkpoint_dtype)
    threads, threads_reason = _threads(settings)
    return DevicePlan(
        device=device,
        device_reason=device_reason,
        dtype=dtype,
        dtype_reason=dtype_reason,
        num_threads=threads,
        threads_reason=threads_reason,
    )


def _device(settings: EngineSettings) -> tuple[torch.device, str]:
    if settings.device is None:
        if torch.cuda.is_available():
            return torch.device("cuda"), f"{torch.cuda.get_device_name()} is available"
        return torch.device("cpu"), "no CUDA device is available"
    try:
        device = torch.device(settings.device)
    except RuntimeError as error:
        raise EngineError(f"device {settings.device!r} is not one torch knows.") from error
    if device.type not in {"cpu", "cuda"}:
        raise EngineError(f"device {settings.device!r} is not supported; use cpu or cuda.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise EngineError("device cuda was asked for, but torch finds no CUDA device here.")
    return device, "asked for"


def _dtype(
    settings: EngineSettings, device: torch.device, checkpoint: torch.dtype | None
) -> tuple[torch.dtype, str]:
    if settings.dtype is not None:
        if settings.dtype not in DTYPES:
            raise EngineError(f"dtype {settings.dtype!r} is not one of {', '.join(DTYPES)}.")
        return DTYPES[settings.dtype], "asked for"
    if device.type == "cuda":
        return torch.bfloat16, "CUDA devices multiply bfloat16 fastest"
    if not has_fast_bfloat16():
        return torch.float32, (
            "this CPU has neither AVX512-BF16 nor AMX, without which bfloat16 is tens of times "
            "slower than float32"
        )
    if checkpoint is None or checkpoint == torch.float32:
        return torch.float32, "the weights are stored in float32 (bfloat16 is fast here: set dtype)"
    return torch.bfloat16, "the weights are stored in 16 bits and this CPU multiplies bfloat16"


def has_fast_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 in hardware."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def _threads(settings: EngineSettings) -> tuple[int, str]:
    if settings.num_threads is not None:
        return settings.num_threads, "asked for"
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    physical = psutil.cpu_count(logical=False) or usable or 1
    return max(1, min(physical, usable or physical)), "one per physical core this process may use"
