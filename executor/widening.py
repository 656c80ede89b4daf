"""Compute in a wider type than the weights are stored in, without a wide copy of them.

Linear layers and token tables keep their weights and widen them as they are used; everything else
is small and converted. A model then is what its float32 copy is, number for number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

_SHORT = (torch.bfloat16, torch.float16)


class Widening:
    """A module whose forward computes in `dtype`; `undo` makes it what it was."""

    def __init__(self, module: nn.Module, dtype: torch.dtype = torch.float32) -> None:
        self._dtype = dtype
        self._forwards: list[tuple[nn.Module, Any]] = []
        self._data: list[tuple[Tensor, Tensor]] = []
        kept = self._keep_stored(module)
        with torch.no_grad():
            for tensor in (*module.parameters(), *module.buffers()):
                if tensor.is_floating_point() and id(tensor) not in kept:
                    self._convert(tensor)

    def _keep_stored(self, module: nn.Module) -> set[int]:
        """Weights that are widened in use. One that other modules hold as well is not kept."""
        forwards = {nn.Linear: _linear(self._dtype), nn.Embedding: _embedding(self._dtype)}
        kept: set[int] = set()
        holders: dict[int, set[type]] = {}
        for child in module.modules():
            for parameter in child.parameters(recurse=False):
                holders.setdefault(id(parameter), set()).add(type(child))
        for child in module.modules():
            forward = forwards.get(type(child))
            weight = getattr(child, "weight", None)
            if forward is None or weight is None or weight.dtype not in _SHORT:
                continue
            if holders[id(weight)] <= forwards.keys():
                kept.add(id(weight))
                self._forwards.append((child, vars(child).get("forward")))
                child.forward = MethodType(forward, child)
        return kept

    def _convert(self, tensor: Tensor) -> None:
        if tensor.dtype != self._dtype:
            self._data.append((tensor, tensor.data))
            tensor.data = tensor.data.to(self._dtype)

    def undo(self) -> None:
        for module, forward in self._forwards:
            if forward is None:
                del module.forward
            else:
                module.forward = forward
        for tensor, data in self._data:
            tensor.data = data


@contextmanager
def widened(module: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Let a module compute in this type for a while."""
    widening = Widening(module, dtype)
    try:
        yield
    finally:
        widening.undo()


def _linear(dtype: torch.dtype) -> Callable[[Any, Tensor], Tensor]:
    def forward(self: nn.Linear, rows: Tensor) -> Tensor:
        return functional.linear(rows.to(dtype), self.weight.to(dtype), self.bias)

    return forward


def _embedding(dtype: torch.dtype) -> Callable[[Any, Tensor], Tensor]:
    def forward(self: nn.Embedding, tokens: Tensor) -> Tensor:
        rows: Tensor = functional.embedding(tokens, self.weight, self.padding_idx)
        return rows.to(dtype)

    return forward
