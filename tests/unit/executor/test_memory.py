"""What is asked of the system about memory changes no number, and is asked on any tensor."""

from __future__ import annotations

import mmap
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from executor.compiled.touching import Touching
from executor.memory import (
    HUGE_PAGE,
    _in_turn,
    in_huge_pages,
    keep_freed_memory,
    passing,
    prefer_huge_pages,
    take_ahead,
    wait_for_memory,
)

PAGES = HUGE_PAGE // 4
"""Numbers of float32 in one."""


def test_tensors_keep_their_numbers_while_their_memory_is_taken() -> None:
    tensors = [torch.empty(5 * PAGES, dtype=torch.float32) for _ in range(3)]
    for tensor in tensors:
        prefer_huge_pages(tensor)
    taking = take_ahead([tensor[7:] for tensor in tensors])
    for value in range(9):
        for tensor in tensors:
            tensor.fill_(value % 3)
    wait_for_memory()
    assert all(bool((tensor == 2).all()) for tensor in tensors)
    assert taking is None or taking.taken == sum(tensor[7:].nbytes for tensor in tensors)


@pytest.mark.skipif(not Path("/proc/self/pagemap").exists(), reason="Linux says what is there")
def test_memory_is_there_once_it_was_taken_and_not_before() -> None:
    first, second = (passing(3 * HUGE_PAGE) for _ in range(2))
    assert resident(first) == resident(second) == 0
    taking = take_ahead([first[:HUGE_PAGE]])
    assert taking is not None
    wait_for_memory()
    assert taking.taken == HUGE_PAGE
    assert resident(first) == HUGE_PAGE
    assert resident(second) == 0
    assert not first.any()


_ENDS_EARLY = """
import atexit, threading
atexit.register(lambda: print([each.name for each in threading.enumerate() if each.daemon]))
import torch
from safetensors.torch import save_file
from executor.memory import take_ahead
taking = take_ahead([torch.empty(1 << 30, dtype=torch.uint8)])
"""


def test_nothing_is_taken_any_more_when_python_ends() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _ENDS_EARLY], capture_output=True, text=True, check=True
    )
    assert ended.stdout == "[]\n"


def resident(tensor: torch.Tensor) -> int:
    """Bytes of its pages that the system has found, as it says in bit 63 of each page's entry."""
    page, begin = mmap.PAGESIZE, tensor.data_ptr()
    with Path("/proc/self/pagemap").open("rb") as file:
        file.seek(8 * (begin // page))
        entries = np.frombuffer(file.read(8 * (tensor.nbytes // page)), dtype=np.uint64)
    return page * int((entries >> np.uint64(63)).sum())


def test_pieces_are_taken_in_turn_and_none_after_a_stop() -> None:
    numbers = np.zeros(4 * mmap.PAGESIZE, dtype=np.uint8)
    at = numbers.ctypes.data
    touching = Touching([(at, at + 8), (at + 8, at + 16)], mmap.PAGESIZE)
    assert touching.begun == 0
    touching.run()
    assert touching.begun == 2
    stopped = Touching([(0, 1)], mmap.PAGESIZE)  # an address that nobody may write to
    stopped.stop()
    stopped.run()
    assert stopped.begun == 1
    assert _in_turn([[(1, 2), (2, 3)], [(5, 6)]]) == [(1, 2), (5, 6), (2, 3)]


def test_tensors_laid_into_huge_pages_keep_to_their_places() -> None:
    numbers = torch.arange(3 * 5 * 7, dtype=torch.float32)
    given = [numbers.view(3, 5, 7), numbers.half()[:9], torch.ones(40 * HUGE_PAGE // 4)]
    laid = [
        in_huge_pages(tensor.shape, tensor.dtype, stays=stays).copy_(tensor)
        for stays in (True, False)
        for tensor in given
    ]
    for tensor, copied in zip(2 * given, laid, strict=True):
        assert torch.equal(tensor, copied)
        assert copied.is_contiguous()
        assert copied.data_ptr() % 64 == 0


def test_small_tensors_are_left_alone() -> None:
    prefer_huge_pages(torch.zeros(3))
    assert take_ahead([torch.zeros(3)]) is None


def test_systems_without_huge_pages_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    tensor = torch.zeros(HUGE_PAGE)
    prefer_huge_pages(tensor)
    keep_freed_memory()
    assert take_ahead([tensor]) is None


MAPPED = """
import sys
from safetensors import safe_open
from executor.memory import let_go_of_file

def of_file():
    return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("RssFile"))

with safe_open(sys.argv[1], framework="pt") as opened:
    tensor = opened.get_tensor("weight")
total = tensor.sum()
before = of_file()
let_go_of_file(tensor)
assert before - of_file() > tensor.nbytes // 1024 * 0.9, (before, of_file())
assert tensor.sum() == total
own = tensor.clone()
let_go_of_file(own)
assert own.sum() == total
"""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux tells")
def test_memory_of_a_mapped_checkpoint_is_given_back_and_can_be_read_again(tmp_path: Path) -> None:
    weight = torch.randn(2048, 2048, generator=torch.Generator().manual_seed(0))
    save_file({"weight": weight}, tmp_path / "model.safetensors")
    subprocess.run([sys.executable, "-c", MAPPED, str(tmp_path / "model.safetensors")], check=True)
