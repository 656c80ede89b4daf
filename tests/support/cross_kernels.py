"""Compile kernels for another processor into a folder; what they are, as JSON.

Each becomes NAME.o and NAME.s. Arguments: a target's name, the folder, and names of kernels.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.cross_codegen import TARGETS, Compiled, retarget


def kernels() -> dict[str, Callable[[], Any]]:
    """By name, what makes each kernel."""
    from executor import norm, rotary
    from executor.attention import writing
    from executor.attention.kernel import attention_kernel
    from executor.compiled import eviction, llvm_team, series, touching
    from executor.compiled.emit import vector_width
    from executor.compiled.halves import BFLOAT16, FLOAT16, FLOAT32
    from executor.compiled.processor import is_x86
    from executor.product import product_kernel

    width = vector_width()
    made = {
        "product": lambda: product_kernel(width, gated=False, stored=FLOAT32),
        "gated": lambda: product_kernel(width, gated=True, stored=FLOAT32),
        "product_bfloat16": lambda: product_kernel(width, gated=True, stored=BFLOAT16),
        "product_float16": lambda: product_kernel(width, gated=False, stored=FLOAT16),
        "norm": norm._kernel,
        "rotary": rotary._kernel,
        "writing": writing._kernel,
        "series": series._kernel,
        "touching": touching._kernel,
        "micro_task": llvm_team._micro_task,
        "barrier": llvm_team._barrier_kernel,
        "attention_64": lambda: attention_kernel(3, 64, 64, width, FLOAT32),
        "attention_128": lambda: attention_kernel(4, 128, 128, width, BFLOAT16),
        "attention_odd": lambda: attention_kernel(1, 80, 48, min(width, 16), FLOAT32),
    }
    return {**made, "eviction": eviction._kernel} if is_x86() else made


def main(target: str, folder: str, *names: str) -> None:
    made = retarget(TARGETS[target])
    from executor.compiled import kernel
    from executor.compiled.emit import vector_width

    kernel.compiled = made  # type: ignore[assignment]
    every = kernels()
    facts = {name: _write(every[name](), Path(folder) / name) for name in names or every}
    sys.stdout.write("\n" + json.dumps({"width": vector_width(), "kernels": facts}))


def _write(kernel: Compiled, path: Path) -> dict[str, Any]:
    path.with_suffix(".o").write_bytes(kernel.instructions)
    path.with_suffix(".s").write_text(kernel.assembly)
    return {"symbol": kernel.symbol}


if __name__ == "__main__":
    main(*sys.argv[1:])
