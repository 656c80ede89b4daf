"""How many bytes an engine holds, counted by looking at all that can be reached from it."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor, nn

from executor.model import PagedCache

Extent = tuple[int, int]
"""First address and the one behind the last."""

_CONTAINERS = (list, tuple, set, frozenset)


def held_bytes(engine: object) -> tuple[int, int]:
    """Of all tensors but the cache's, and of the cache, for an engine on the CPU.

    Tensors that share memory count once, what nobody uses of a larger allocation does not count.
    """
    everything = _bytes(value for value in _reachable(engine) if isinstance(value, Tensor))
    cache = _bytes(tensor for cache in caches_of(engine) for tensor in cache.tensors)
    return everything - cache, cache


def caches_of(engine: object) -> list[PagedCache]:
    return [value for value in _reachable(engine) if isinstance(value, PagedCache)]


def union(extents: Iterable[Extent]) -> int:
    """Addresses that are in at least one of the extents."""
    total, reached = 0, 0
    for begin, end in sorted(extents):
        total += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def _bytes(tensors: Iterable[Tensor]) -> int:
    opaque, addressed = 0, []
    for tensor in tensors:
        if tensor.is_mkldnn:
            opaque += tensor.numel() * tensor.element_size()
        elif tensor.device.type == "cpu" and tensor.numel():
            addressed.append(_extent(tensor))
    return opaque + union(addressed)


def _extent(tensor: Tensor) -> Extent:
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    begin = tensor.data_ptr()
    return begin, begin + (last + 1) * tensor.element_size()


def _reachable(root: object) -> Iterator[object]:
    """Objects of ours and torch's modules, and the tensors in them, each once."""
    seen: dict[int, object] = {}
    waiting = [root]
    while waiting:
        value = waiting.pop()
        if id(value) not in seen:
            seen[id(value)] = value  # kept, so that no other object gets its id
            yield value
            waiting += _inside(value)


def _inside(value: Any) -> Iterator[object]:
    if isinstance(value, Tensor):
        return
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, _CONTAINERS):
        yield from value
    elif isinstance(value, functools.partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, types.MethodType):
        yield value.__self__
    elif isinstance(value, types.FunctionType):
        yield from (cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell))
    elif isinstance(value, nn.Module) or type(value).__module__.startswith("executor"):
        yield from _attributes(value)


def _is_filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _attributes(value: object) -> Iterator[object]:
    yield from getattr(value, "__dict__", {}).values()
    for kind in type(value).__mro__:
        for name in _slots(kind):
            if hasattr(value, name):
                yield getattr(value, name)


def _slots(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)
