"""What is asked of the system about memory changes no number, and is asked on any tensor."""

from __future__ import annotations

import mmap

import pytest
import torch

from executor.memory import (
    HUGE_PAGE,
    keep_freed_memory,
    prefer_huge_pages,
    take_ahead,
    wait_for_memory,
)


def test_a_tensor_keeps_its_numbers_on_huge_pages() -> None:
    tensor = torch.arange(3 * HUGE_PAGE // 4, dtype=torch.float32)
    prefer_huge_pages(tensor)
    take = take_ahead([tensor[7:]])
    wait_for_memory()
    assert take is None or not take.is_alive()
    assert torch.equal(tensor, torch.arange(3 * HUGE_PAGE // 4, dtype=torch.float32))


def test_small_tensors_are_left_alone() -> None:
    prefer_huge_pages(torch.zeros(3))
    assert take_ahead([torch.zeros(3)]) is None


def test_systems_without_huge_pages_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    tensor = torch.zeros(HUGE_PAGE)
    prefer_huge_pages(tensor)
    keep_freed_memory()
    assert take_ahead([tensor]) is None
