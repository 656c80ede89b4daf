"""The layout of a packed step of whole texts: no padding, texts of one length side by side."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class EqualLengths:
    """`count` texts of `length` tokens each, from row `start` of the step on."""

    start: int
    count: int
    length: int

    @property
    def rows(self) -> slice:
        return slice(self.start, self.start + self.count * self.length)

    def split(self, packed: Tensor) -> Tensor:
        """Of a step's [T, …] these texts' [count, length, …], without a copy."""
        rows = packed[self.rows]
        return rows.view(self.count, self.length, *rows.shape[1:])


@dataclass(frozen=True)
class TextBatch:
    """A step's texts in order, T tokens in all.

    Texts of equal length are computed together if they are neighbours; in any order the vectors
    are the same.
    """

    texts: Sequence[tuple[int, ...]]
    groups: tuple[EqualLengths, ...]
    _derived: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, texts: Sequence[tuple[int, ...]]) -> TextBatch:
        groups, start = [], 0
        for length, alike in groupby(texts, key=len):
            group = EqualLengths(start, sum(1 for _ in alike), length)
            groups.append(group)
            start += group.count * length
        return cls(texts, tuple(groups))

    def row(self, device: torch.device) -> Tensor:
        """Token ids [1, T]."""
        return torch.tensor([t for text in self.texts for t in text], device=device)[None]

    def positions(self, device: torch.device, offset: int = 0) -> Tensor:
        """Of each token within its text [1, T], counted from `offset`."""
        counted = [
            torch.arange(offset, offset + group.length).repeat(group.count) for group in self.groups
        ]
        return torch.cat(counted).to(device)[None]

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What `make` gives at the first call with `key`: worked out once for all layers."""
        if key not in self._derived:
            self._derived[key] = make()
        return self._derived[key]
