"""Server processes that do not outlive the tests."""

from __future__ import annotations

import sys

_DIE_WITH_PARENT = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
os.execv(sys.argv[1], sys.argv[1:])
"""


def dying_with_parent(*command: str) -> list[str]:
    """The command, run so that the kernel kills it when its parent is gone (Linux)."""
    return [sys.executable, "-c", _DIE_WITH_PARENT, *command]
