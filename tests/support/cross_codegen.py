"""Numba made to compile for another processor, for the rest of a process."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A processor and system by LLVM's names."""

    triple: str
    cpu: str
    features: str
    """Those that kernels ask for (`processor.has_feature`)."""


_LINUX_ARM, _LINUX_X86 = "aarch64-unknown-linux-gnu", "x86_64-unknown-linux-gnu"

TARGETS = {
    "apple-m1": Target(triple="arm64-apple-macosx", cpu="apple-m1", features="+neon"),
    "neoverse-n1": Target(triple=_LINUX_ARM, cpu="neoverse-n1", features="+neon"),
    "neoverse-v1": Target(triple=_LINUX_ARM, cpu="neoverse-v1", features="+neon"),
    "haswell": Target(triple=_LINUX_X86, cpu="haswell", features="+avx2,+fma"),
    "skylake-avx512": Target(triple=_LINUX_X86, cpu="skylake-avx512", features="+avx512f,+fma"),
    "sapphirerapids": Target(triple=_LINUX_X86, cpu="sapphirerapids", features="+avx512f,+fma"),
}


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel for the target."""

    symbol: str
    instructions: bytes
    """An object file."""
    assembly: str


def retarget(target: Target) -> Callable[..., Compiled]:
    """Compile for the target from now on; call it before `executor` is imported.

    Returns:
        What stands for `executor.compiled.kernel.compiled`: of a function and its arguments'
        types, makes the object.
    """
    os.environ["NUMBA_CPU_NAME"], os.environ["NUMBA_CPU_FEATURES"] = target.cpu, target.features
    os.environ["NUMBA_DISABLE_INTEL_SVML"] = "1"
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.get_process_triple = lambda: target.triple

    import numba
    import numpy as np
    from numba.core import codegen, cpu
    from numba.core.ccallback import CFunc
    from numba.core.compiler_lock import global_compiler_lock

    class Codegen(codegen.CPUCodegen):  # type: ignore[misc]
        """What Numba's own does, without an engine to run the code."""

        _library_class = codegen.AOTCodeLibrary

        def _init(self, module: Any) -> None:
            self._tm_features = target.features
            self._tm = llvm.Target.from_triple(target.triple).create_target_machine(
                opt=3, cpu=target.cpu, features=target.features, reloc="static"
            )
            self._tm.set_asm_verbosity(True)
            self._target_data = self._tm.target_data
            self._data_layout = str(self._target_data)
            self._loopvect, self._opt_level = False, 0
            self._engine = None

        def _customize_tm_features(self) -> str:
            return target.features

        def _add_module(self, module: Any) -> None:
            """There is no engine to add it to."""

        def _scan_and_fix_unresolved_refs(self, module: Any) -> None:
            """No function of another module is called."""

        def set_env(self, *_: Any) -> None:
            """There is no Python there."""

    codegen.JITCPUCodegen = Codegen
    # What stands for a function's code here, which nobody calls. Numba wants a builtin function,
    # and tells one function from another by it.
    cpu.CPUContext.get_executable = lambda *_: [].append

    def compiled(function: Any, *arguments: Any) -> Compiled:
        kinds = [numba.types.CPointer(numba.from_dtype(np.dtype(kind))) for kind in arguments]
        kernel = CFunc(function, (kinds, numba.types.void), {}, {"error_model": "numpy"})
        with global_compiler_lock:
            made = kernel._compile_uncached()
            library = made.library
            return Compiled(
                symbol=made.fndesc.llvm_cfunc_wrapper_name,
                instructions=library.emit_native_object(),
                assembly=library._codegen._tm.emit_assembly(library._final_module),
            )

    return compiled
