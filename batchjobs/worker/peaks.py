"""What this machine could do at most, found out once in a process."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from executor.roofline import MachinePeak

if TYPE_CHECKING:
    from executor.device import DevicePlan


@lru_cache(maxsize=4)
def machine_peak(device: DevicePlan | None) -> MachinePeak | None:
    """Of the device and number type that an engine computes with; None for one that has none."""
    if device is None:
        return None
    from executor.linear import Packing
    from executor.memory import give_back_freed_memory
    from executor.peak import measure_peak

    give_back_freed_memory()  # of the job before, so that measuring does not add to its memory
    types = device.types
    return measure_peak(
        dtype=types.activations,
        device=device.device,
        packing=Packing(weights=types.weights, products=types.products),
    )
