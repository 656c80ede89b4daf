"""The machine's limits are measured in a process that has just run a job, and cost it little."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from executor.compiled.eviction import can_evict, evict
from executor.peak import measure_peak

MOST_MIB = 60


def test_the_machine_has_a_peak() -> None:
    peak = measure_peak(shapes=((64, 64, 64),), read_bytes=1 << 20, repeats=3)
    assert peak.flops >= peak.median_flops > 0
    assert peak.ridge == peak.flops / peak.bandwidth > 0
    packed = peak.with_packed_weights
    assert packed is not None
    assert packed.flops == peak.packed_flops
    assert packed.flops > 0
    assert packed.bandwidth == peak.bandwidth


def test_other_number_types_have_a_peak_too() -> None:
    peak = measure_peak(
        dtype=torch.bfloat16, shapes=((64, 32, 96), (8, 16, 32)), read_bytes=1 << 20, repeats=2
    )
    assert peak.flops >= peak.median_flops > 0


def test_what_is_put_out_of_the_caches_keeps_its_numbers_and_is_read_from_memory() -> None:
    if not can_evict():
        pytest.skip("this processor lets no program do it")
    numbers = np.arange(1 << 18, dtype=np.float32)
    before = numbers.copy()
    # A number of every cache line, in an order that nothing fetches ahead.
    order = np.random.default_rng(0).permutation(np.arange(0, len(numbers), 16))
    cached, evicted = [], []
    for _ in range(50):
        numbers.take(order)
        cached.append(_seconds(numbers, order))
        evict(numbers.ctypes.data, numbers.nbytes)
        evicted.append(_seconds(numbers, order))
    assert np.array_equal(numbers, before)
    assert min(evicted) > 2 * min(cached)


def _seconds(numbers: np.ndarray, order: np.ndarray) -> float:
    started = time.perf_counter()
    numbers.take(order)
    return time.perf_counter() - started


GROWTH = """
from pathlib import Path
import torch
from executor.linear import can_prepack, packed_linear
from executor.memory import keep_freed_memory
from executor.peak import measure_peak

def mib(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024

torch.set_num_threads(2)
packed_linear(torch.ones(64, 64), None)(torch.ones(4, 64))  # what an engine has loaded as well
keep_freed_memory()
Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
before = mib("VmRSS")
measure_peak(repeats=1)
print(mib("VmHWM") - before, mib("VmRSS") - before)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux counts it")
@pytest.mark.skipif(not can_evict(), reason="there is more to read where caches stay full")
def test_measuring_takes_little_memory_and_gives_it_back() -> None:
    done = subprocess.run(
        [sys.executable, "-c", GROWTH], capture_output=True, text=True, check=True
    )
    at_most, afterwards = map(float, done.stdout.split())
    assert at_most < MOST_MIB
    assert afterwards < MOST_MIB / 3
