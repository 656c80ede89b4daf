"""The processor that kernels are compiled for: this one, or a lesser one that is asked for.

Numba compiles for `NUMBA_CPU_NAME` and `NUMBA_CPU_FEATURES` where they are set.
"""

from __future__ import annotations

from functools import cache

import llvmlite.binding
import numba
from numba.core.codegen import get_host_cpu_features


@cache
def features() -> frozenset[str]:
    """Instruction sets by LLVM's names (`avx2`). Asked once: LLVM takes a quarter of a
    millisecond to answer."""
    asked: str | None = numba.config.CPU_FEATURES
    words = (get_host_cpu_features() if asked is None else asked).split(",")
    return frozenset(word.strip()[1:] for word in words if word.strip().startswith("+"))


def has_feature(name: str) -> bool:
    return name in features()


@cache
def is_x86() -> bool:
    """Whether it is a 64-bit x86."""
    return str(llvmlite.binding.get_process_triple()).startswith("x86_64")
