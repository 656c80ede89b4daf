"""What is asked of the system about memory changes no number, and is asked on any tensor."""

from __future__ import annotations

import mmap

import pytest
import torch

from executor.memory import (
    HUGE_PAGE,
    in_huge_pages,
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
