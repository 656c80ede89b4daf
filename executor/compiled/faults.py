"""Which kernels do not work here: they are switched off, and the job goes on without them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

logger = logging.getLogger(__name__)

_TOLERANCE = 1e-4
"""Of the largest number expected. Sums of a self-check have fewer than 200 terms in float32, of
which each adds at most 6e-8 of the largest partial sum: 1.2e-5 in all."""


class WrongAnswerError(Exception):
    """A kernel computes something else than torch."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A kernel that is not used in this process."""

    kernel: str
    reason: str
    instead: str

    def __str__(self) -> str:
        return f"{self.kernel} not used, {self.instead} instead ({self.reason})"


_verdicts: dict[str, Fault | None] = {}


def works(kernel: str, instead: str, check: Callable[[], object]) -> bool:
    """Whether a kernel compiles here and answers right. Checked once in a process.

    Args:
        kernel: its name, for people; the verdict is kept under it.
        instead: what computes the same where it does not work, for people.
        check: compiles and runs it; raises any exception if that fails (`expect`).
    """
    if kernel not in _verdicts:
        _verdicts[kernel] = fault = _fault(kernel, instead, check)
        if fault is not None:
            logger.warning("Compiled kernel: %s", fault)
    return _verdicts[kernel] is None


def faults() -> tuple[Fault, ...]:
    """Kernels that were found not to work so far."""
    return tuple(fault for fault in _verdicts.values() if fault is not None)


def expect(answer: Tensor, expected: Tensor) -> None:
    """Compare a kernel's answer with torch's, of the same shape.

    Raises:
        WrongAnswerError: they differ by more than rounding.
    """
    difference = float((answer.double() - expected.double()).abs().max())
    bound = _TOLERANCE * float(expected.abs().max())
    if not difference <= bound:  # NaN is neither
        raise WrongAnswerError(f"its self-check is off by {difference:.3g} (allowed: {bound:.1g})")


@torch.inference_mode()
def _fault(kernel: str, instead: str, check: Callable[[], object]) -> Fault | None:
    try:
        check()
    except Exception as error:
        # Whatever a compiler or a wrong address can raise: the job needs none of it.
        words = " ".join(str(error).split()) or "no message"
        return Fault(kernel, f"{type(error).__name__}: {words[:_MOST_WORDS]}", instead)
    return None


_MOST_WORDS = 300
"""Characters of an error; Numba's may be pages."""
