"""Made-up logits on a machine whose allocator fails."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Many

import torch
from torch import Tensor

from executor.fake import HashModel
from executor.settings import Limits
from executor.span import Span


def cuda_failure() -> Exception:
    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def cpu_failure() -> Exception:
    """What torch's own CPU allocator raises."""
    try:
        torch.empty(1 << 60)
    except RuntimeError as error:
        return error
    raise AssertionError("there is memory without end")


class ScarceModel(HashModel):
    """Fails for steps of more than `most` positions, and for those with `poison` among them.

    Half of a step that fails has been computed and stored.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        most: int = 1 << 30,
        poison: int | None = None,
        failure: Callable[[], Exception] = cuda_failure,
    ) -> None:
        super().__init__(limits)
        self.most = most
        self._poison = poison
        self._failure = failure
        self.sizes: list[int] = []
        """Positions of each step, negative for one that failed."""

    def forward(self, spans: Many[Span]) -> Tensor:
        size = sum(span.positions for span in spans)
        is_poisoned = any(self._poison in span.tokens for span in spans)
        if size > self.most or is_poisoned:
            self.sizes.append(-size)
            super().forward(spans[: len(spans) // 2])
            raise self._failure()
        self.sizes.append(size)
        return super().forward(spans)
