"""Which device, number types and thread count to compute with, and why."""

from __future__ import annotations

import os
from dataclasses import dataclass

import psutil
import torch

from executor.errors import EngineError
from executor.number_types import DTYPES, NumberTypes, cpu_types, cuda_types
from executor.settings import EngineSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePlan:
    """A decision and, for each part of it, the reason in words."""

    device: torch.device
    device_reason: str
    types: NumberTypes
    num_threads: int
    threads_reason: str

    @property
    def is_cpu(self) -> bool:
        return self.device.type == "cpu"


def plan_device(settings: EngineSettings, stored: torch.dtype | None) -> DevicePlan:
    """Decide for a model whose matrices are stored in `stored` (None: several types, or not known).

    Raises:
        EngineError: the asked-for device or dtype does not exist here.
    """
    device, device_reason = _device(settings)
    asked = _asked_dtype(settings)
    types = cuda_types(asked) if device.type == "cuda" else cpu_types(asked, stored)
    threads, threads_reason = _threads(settings)
    return DevicePlan(
        device=device,
        device_reason=device_reason,
        types=types,
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


def _asked_dtype(settings: EngineSettings) -> torch.dtype | None:
    if settings.dtype is None:
        return None
    if settings.dtype not in DTYPES:
        raise EngineError(f"dtype {settings.dtype!r} is not one of {', '.join(DTYPES)}.")
    return DTYPES[settings.dtype]


def _threads(settings: EngineSettings) -> tuple[int, str]:
    if settings.num_threads is not None:
        return settings.num_threads, "asked for"
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    physical = psutil.cpu_count(logical=False) or usable or 1
    return max(1, min(physical, usable or physical)), "one per physical core this process may use"
