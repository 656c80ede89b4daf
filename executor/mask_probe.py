"""Which keys a query sees in each attention layer, read from the mask that the model makes.

At run time no mask is made for our attention (`hook`), yet some families have their window only
in the mask. So a model is probed once under a second attention name, for which a mask function is
registered: it judges the mask by its function, at any distance, and returns a marker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionMaskInterface

from executor.errors import UnsupportedModelError
from executor.passing import current_context

NAME = "batchjobs_mask_probe"

_FARTHEST = 1 << 18
"""Largest position at which masks are judged; a wider window is taken for none."""
_PLACES = (0, 1, 2, 7, 63, 64, 255, 1000, 4095, 8192, 32767, 131072, _FARTHEST)
"""Positions of queries that are judged, besides those around the edge of a window."""
_BEHIND = 64
"""Positions after its own that a query is shown to see none of."""


@dataclass(frozen=True, slots=True)
class SeenMask:
    """A causal mask; `window` w lets a query see itself and the w - 1 tokens before it."""

    window: int | None


class MaskProbe:
    """The masks that a model made in a pass, by their markers."""

    def __init__(self) -> None:
        self._judged: dict[int, SeenMask | None] = {}
        self._markers: list[Tensor] = []

    def note(self, marker: Tensor, mask: SeenMask | None) -> None:
        """Let `marker` [1, 1, T, T] stand for `mask`; None is one that a packed row cannot have."""
        self._markers.append(marker)  # while it is held, its address is no other tensor's
        self._judged[_address(marker)] = mask

    def seen(self, attention_mask: Tensor | None, owner: str) -> SeenMask:
        """The mask that a layer of the class `owner` was given.

        Raises:
            UnsupportedModelError: it is not causal, or not made by a mask function.
        """
        if attention_mask is None or _address(attention_mask) not in self._judged:
            raise UnsupportedModelError(
                f"{owner} attends without a mask of transformers' mask functions, so which keys "
                "it sees is unknown; models of this kind cannot be packed."
            )
        mask = self._judged[_address(attention_mask)]
        if mask is None:
            raise UnsupportedModelError(
                f"{owner} has a mask that is neither causal nor causal with a window, which a "
                "packed batch cannot give it."
            )
        return mask


def register() -> None:
    """Make the mask function of NAME known to transformers; again is fine."""
    AttentionMaskInterface.register(NAME, _marker)


def _marker(
    batch_size: int,
    q_length: int,
    kv_length: int,
    *,
    mask_function: Callable[..., Any],
    device: Any = None,
    dtype: torch.dtype = torch.float32,
    **_: Any,
) -> Tensor:
    probe: MaskProbe = current_context().masks
    marker = torch.zeros(batch_size, 1, q_length, kv_length, device=device, dtype=dtype)
    probe.note(marker, judge(mask_function))
    return marker


def judge(mask_function: Callable[..., Any]) -> SeenMask | None:
    """The causal mask that `mask_function(batch, head, query, key)` is; None if it is another.

    The window is read from the farthest query. Then all queries of `_PLACES`, and those around
    the edge of the window, must see what that mask lets them see.
    """
    try:
        nearest = int(_visible(mask_function, _FARTHEST).to(torch.int8).argmax())
        window = _FARTHEST - nearest + 1 if nearest else None
        edges = () if window is None else (window - 1, window, window + 1, 2 * window)
        if not all(_agrees(mask_function, q, window) for q in {*_PLACES, *edges}):
            return None
    except Exception:
        # A function that looks into tensors of the batch fails beyond them, in any way.
        return None
    return SeenMask(window)


def _visible(mask_function: Callable[..., Any], query: int) -> Tensor:
    """Which keys the query sees: bool [query + 1 + _BEHIND]."""
    keys = torch.arange(query + 1 + _BEHIND)
    zero = torch.zeros((), dtype=torch.int64)
    seen = mask_function(zero, zero, torch.tensor(query), keys)
    return torch.as_tensor(seen).expand(keys.shape)


def _agrees(mask_function: Callable[..., Any], query: int, window: int | None) -> bool:
    keys = torch.arange(query + 1 + _BEHIND)
    expected = keys <= query
    if window is not None:
        expected &= keys > query - window
    return torch.equal(_visible(mask_function, query), expected)


def _address(tensor: Tensor) -> int:
    """Of the memory that a tensor and its slices share."""
    return tensor.untyped_storage().data_ptr()
