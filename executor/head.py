"""What a causal model does with its decoder's last states, for rows of our choice, afterwards."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor, nn

from executor.errors import UnsupportedModelError


class Head:
    """Keeps the states [1, T, H] of the decoder's last pass, and makes logits of some of them.

    The model's own `forward` does it, over a decoder that gives out those states instead of
    computing: whatever a family does behind it, like scaling or capping, is done as ever. All at
    once, the logits of a long prompt could take more memory than the model.

    Raises:
        UnsupportedModelError: the model has no part of its own that embeds its tokens.
    """

    def __init__(self, module: nn.Module) -> None:
        decoder = _decoder(module)
        self._module = module
        self._forward = decoder.forward
        self._output: Any = None
        self._given: Any = None
        decoder.forward = self._decode

    def logits(self, rows: Tensor) -> Tensor:
        """Logits [R, V] at `rows` [R] of the row that the model computed last."""
        chosen = copy.copy(self._output)
        chosen.last_hidden_state = self._output.last_hidden_state[:, rows]
        self._given = chosen
        try:
            logits: Tensor = self._module(input_ids=rows[None], use_cache=False).logits[0]
        finally:
            self._given = None
        return logits

    def _decode(self, *args: Any, **kwargs: Any) -> Any:
        if self._given is not None:
            return self._given
        self._output = self._forward(*args, **kwargs)
        return self._output


def _decoder(module: Any) -> Any:
    embeddings = module.get_input_embeddings()
    for part in module.modules():
        if part is not module and any(child is embeddings for child in part.children()):
            return part
    raise UnsupportedModelError(f"{type(module).__name__} has no decoder to be found.")
