"""What else a machine does while it is measured."""

from __future__ import annotations

import os
import time

import psutil

NOTICEABLE = 0.1
"""Ways that follow one another do not compare well where others take so much of the processors."""

_IDLE = ("idle", "iowait", "guest", "guest_nice")
"""Not at work, or counted by another name already."""


class Company:
    """A watch of the processor time that other programs take from now on."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._before = _foreign_seconds()

    def share(self) -> float:
        """Of all processors, 0 to 1; what a hypervisor takes is other programs' too."""
        passed = (time.perf_counter() - self._began) * (os.cpu_count() or 1)
        return min(1.0, max(0.0, _foreign_seconds() - self._before) / passed)


def _foreign_seconds() -> float:
    times: dict[str, float] = psutil.cpu_times()._asdict()
    return sum(spent for name, spent in times.items() if name not in _IDLE) - time.process_time()
