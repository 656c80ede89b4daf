"""What an engine computes with: the parts of it that may change the bits of an answer."""

from __future__ import annotations

import torch

from executor.compiled.emit import vector_width
from executor.device import DevicePlan
from executor.number_types import name


def engine_parts(
    device: DevicePlan, attention: str, *, weights: str | None = None, reproducible: bool = False
) -> dict[str, str]:
    """Names and values, in words; `attention` is the backend's name, and `weights` the type of
    quantized weights."""
    types = device.types
    return {
        "device": _device(device.device),
        "attention": attention,
        "activations": name(types.activations),
        "weights": weights or name(types.weights),
        "products": name(types.products),
        "kv_cache": name(types.cache),
        "vector_width": str(vector_width()) if device.device.type == "cpu" else "none",
        "torch": torch.__version__,
        "reproducible": str(reproducible).lower(),
    }


def _device(device: torch.device) -> str:
    """A GPU by its model, as another one of the same model computes the same."""
    return "cpu" if device.type == "cpu" else torch.cuda.get_device_name(device)
