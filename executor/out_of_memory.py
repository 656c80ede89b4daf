"""Whether an error says that memory ran out, and what can be given back at once."""

from __future__ import annotations

import torch

_CPU_ALLOCATOR = ("can't allocate memory", "not enough memory", "could not allocate", "bad_alloc")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, in Python, in torch or on a device."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    said = str(error).lower()
    return isinstance(error, RuntimeError) and any(words in said for words in _CPU_ALLOCATOR)


def give_memory_back() -> None:
    """What a device's allocator keeps for later."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
