"""What a model's decoder layers give out for chosen rows, to see from which layer on runs part."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from torch import Tensor, nn


class LayerStates:
    """Watches the decoder layers of a module inside a `with`; whoever runs it says which rows of
    a pass to keep."""

    def __init__(self, module: nn.Module, num_layers: int) -> None:
        self._layers = _decoder_layers(module, num_layers)
        self._handles: list[Any] = []
        self._last: dict[int, Tensor] = {}
        self._kept: dict[str, dict[tuple[int, int], Tensor]] = {}

    @property
    def count(self) -> int:
        """Of decoder layers."""
        return len(self._layers)

    def of(self, name: str) -> dict[tuple[int, int], Tensor]:
        """By layer and token of a sequence, the states [H] of those that were kept."""
        return self._kept.get(name, {})

    def keep(self, name: str, token: int, row: int) -> None:
        """Keep row `row` of the last pass, which is this token of the sequence `name`."""
        states = self._kept.setdefault(name, {})
        for layer, output in self._last.items():
            states[layer, token] = output[row].double()

    def __enter__(self) -> Self:
        self._handles = [
            layer.register_forward_hook(
                lambda _module, _given, output, index=index: self._note(index, output)
            )
            for index, layer in enumerate(self._layers)
        ]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for handle in self._handles:
            handle.remove()

    def _note(self, index: int, output: Any) -> None:
        states = output if isinstance(output, Tensor) else output[0]
        self._last[index] = states[0]


def _decoder_layers(module: nn.Module, count: int) -> list[nn.Module]:
    lists = [part for part in module.modules() if isinstance(part, nn.ModuleList)]
    fitting = (list(part) for part in lists if len(part) == count)
    return next(fitting, [])
