"""How OpenMP threads wait for each other. Imports no torch: it must be settled before that."""

from __future__ import annotations

import os

SPIN_COUNT = "2000"
"""Of GNU OpenMP, in turns of a loop: some microseconds."""

SPIN_MILLISECONDS = "1"
"""Of LLVM's OpenMP, whose older releases know no smaller unit; its default is 200."""


def yield_when_idle() -> None:
    """Let waiting threads sleep after a short spin, unless the environment says otherwise.

    GNU OpenMP, which torch computes with on Linux, spins for milliseconds by default, and LLVM's,
    on macOS, for 200 of them. As soon as another process wants a core too, most of the time goes
    into spinning for a thread that is not running: two engines on two cores gave 13 tokens/s each,
    and 43 with this; alone the difference was within the machine's noise.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)
        os.environ.setdefault("KMP_BLOCKTIME", SPIN_MILLISECONDS)
