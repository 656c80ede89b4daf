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
    from executor.memory import give_back_freed_memory
    from executor.peak import measure_peak

    give_back_freed_memory()  # of the job before, so that measuring does not add to its memory
    return measure_peak(dtype=device.dtype, device=device.device)
