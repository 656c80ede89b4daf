"""Memory that the processor finds its way about in faster, and that is there when needed."""

from __future__ import annotations

import atexit
import ctypes
import math
import mmap
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise, zip_longest
from pathlib import Path

import torch
from torch import Tensor

from executor.compiled.touching import Touching, can_touch

HUGE_PAGE = 2 << 20


def prefer_huge_pages(tensor: Tensor) -> None:
    """Ask Linux to back a new tensor on the CPU with pages of 2 MB.

    Reading scattered blocks of it then misses fewer translations of addresses. What was never
    written to still takes no memory. Does nothing where there are no such pages.
    """
    if tensor.device.type != "cpu" or not hasattr(mmap, "MADV_HUGEPAGE"):
        return
    begin = -(-tensor.data_ptr() // HUGE_PAGE) * HUGE_PAGE
    end = (tensor.data_ptr() + tensor.nbytes) // HUGE_PAGE * HUGE_PAGE
    if begin < end:
        ctypes.CDLL(None).madvise(
            ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), mmap.MADV_HUGEPAGE
        )


_CHUNK_BYTES = 64 << 20


class _Chunks:
    """Memory in huge pages that tensors are laid into, one behind the other: a page is larger
    than a small model's matrices. A chunk is let go with the last tensor in it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._chunk = torch.empty(0, dtype=torch.uint8)

    def take(self, size: int) -> Tensor:
        """So many bytes, which begin at a cache line."""
        whole = -(-size // _CACHE_LINE) * _CACHE_LINE
        with self._lock:
            if len(self._chunk) < whole:
                self._chunk = torch.empty(max(whole, _CHUNK_BYTES), dtype=torch.uint8)
                prefer_huge_pages(self._chunk)
            taken, self._chunk = self._chunk[:size], self._chunk[whole:]
        return taken


_CACHE_LINE = 64
_chunks = _Chunks()


def in_huge_pages(shape: Sequence[int], dtype: torch.dtype, *, stays: bool = True) -> Tensor:
    """A new tensor on the CPU for what is read again and again, like a weight. One that does not
    stay is laid into memory of its own (`passing`)."""
    size = math.prod(shape) * dtype.itemsize
    if stays:
        memory = _chunks.take(size)
    else:
        memory = passing(size)
        prefer_huge_pages(memory)
    return memory.view(dtype).view(*shape)


def passing(size: int) -> Tensor:
    """So many bytes on the CPU that go back to the system with the last tensor in them, however
    much freed memory is kept (`keep_freed_memory`)."""
    return torch.frombuffer(mmap.mmap(-1, size, **_PRIVATE), dtype=torch.uint8)


_LEAST_FORGOTTEN_BYTES = 1 << 20


def let_go_of_file(*tensors: Tensor) -> None:
    """Give back the memory of tensors that are mapped from a checkpoint's file.

    Reading them again gets them from the file. A checkpoint that was packed then does not stay in
    memory beside its copy, long before the last tensor in it is let go. Does nothing for memory
    that is not such a file's, and where Linux does not say whose it is.
    """
    large = [t for t in tensors if t.device.type == "cpu" and t.nbytes >= _LEAST_FORGOTTEN_BYTES]
    files = _mapped_checkpoints() if large else []
    for tensor in large:
        begin = -(-tensor.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (tensor.data_ptr() + tensor.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if any(first <= begin and end <= last for first, last in files):
            ctypes.CDLL(None).madvise(
                ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), mmap.MADV_DONTNEED
            )


def _mapped_checkpoints() -> list[tuple[int, int]]:
    """From where to where safetensors files lie in memory."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return []
    lines = [line for line in maps.read_text().splitlines() if line.endswith(".safetensors")]
    ranges = (line.split(maxsplit=1)[0].split("-") for line in lines)
    return [(int(begin, 16), int(end, 16)) for begin, end in ranges]


_PRIVATE: dict[str, int] = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
)
"""Memory that processes share, as Python's is by default, has no huge pages."""


_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Parameters of glibc's mallopt."""

_KEPT_BYTES = 256 << 20


def keep_freed_memory() -> None:
    """Have glibc keep up to 256 MB that were freed, for the next step's activations and logits.

    It would return them to Linux at once, and every layer would get its memory page by page
    again. Does nothing on other C libraries.
    """
    if hasattr(mmap, "MADV_HUGEPAGE") and hasattr(library := ctypes.CDLL(None), "mallopt"):
        library.mallopt(_MMAP_MAX, 0)  # what has a mapping of its own goes back when freed
        library.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


def give_back_freed_memory() -> None:
    """What is kept of it, to the system. Does nothing on other C libraries."""
    if hasattr(library := ctypes.CDLL(None), "malloc_trim"):
        library.malloc_trim(ctypes.c_size_t(0))


class Taking:
    """Has Linux find the pages of new tensors on the CPU meanwhile, and not when first written:
    the first pages of all tensors, then their second ones, and so on.

    A virtual machine may have to get every page from its host first: 2 MB in 4 ms on one of them.
    It is done while a core is idle, so that a small job does not wait for memory that it never
    needs. Begin it with `take_ahead`.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        pieces = _in_turn([_pieces(tensor) for tensor in tensors])
        self._sizes = [end - begin for begin, end in pieces]
        self._touching = Touching(pieces, mmap.PAGESIZE)
        _at_work.add(self)
        threading.Thread(target=self._take, args=(tensors,), name=_TAKER, daemon=True).start()

    @property
    def taken(self) -> int:
        """Bytes that are there, or will be in a moment."""
        return sum(self._sizes[: self._touching.begun])

    def stop(self) -> None:
        """Take no more than the piece that was begun, and then hold the tensors no longer."""
        self._touching.stop()

    def _take(self, _: Sequence[Tensor]) -> None:
        """Holds the tensors, whose memory would be somebody else's once they are let go."""
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # of this thread alone
        self._touching.run()
        _at_work.discard(self)


def take_ahead(tensors: Sequence[Tensor]) -> Taking | None:
    """Begin; None where there is nothing to gain: on other systems, devices, and for little."""
    large = [t for t in tensors if t.device.type == "cpu" and t.nbytes >= HUGE_PAGE]
    gains = large and hasattr(mmap, "MADV_HUGEPAGE") and can_touch()
    return Taking(large) if gains else None


def wait_for_memory() -> None:
    """Until all that is taken ahead is there: a measurement does not count how memory is found."""
    for thread in threading.enumerate():
        if thread.name == _TAKER:
            thread.join()


@atexit.register
def _stop_taking() -> None:
    """Before Python ends: a thread that lets go of tensors while it does aborts the process."""
    for taking in list(_at_work):
        taking.stop()
    wait_for_memory()


_TAKER = "memory"
_at_work: set[Taking] = set()


def _pieces(tensor: Tensor) -> list[tuple[int, int]]:
    """Each in a huge page of its own."""
    begin = tensor.data_ptr()
    end = begin + tensor.nbytes
    cuts = range(begin // HUGE_PAGE * HUGE_PAGE + HUGE_PAGE, end, HUGE_PAGE)
    return list(pairwise([begin, *cuts, end]))


def _in_turn(groups: Sequence[Sequence[tuple[int, int]]]) -> list[tuple[int, int]]:
    return [piece for turn in zip_longest(*groups) for piece in turn if piece is not None]
