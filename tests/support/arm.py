"""Kernels for AArch64 run in an emulator (Unicorn, a part of QEMU), on arrays of this process."""

from __future__ import annotations

import ctypes
import math
import struct
from typing import Any

import numpy as np
import unicorn
from numpy.typing import NDArray
from unicorn import arm64_const as arm

from tests.support.elf import Image, link

_CODE, _STUBS, _HEAP, _STACK = 0x10_0000, 0x100_0000, 0x1000_0000, 0x7000_0000
_HEAP_BYTES, _STACK_BYTES, _PAGE = 64 << 20, 1 << 20, 4096
_RETURN = bytes.fromhex("c0035fd6")

Floats = NDArray[np.float32]


class Machine:
    """A processor with a kernel in its memory, and what the kernel calls."""

    def __init__(self, file: bytes) -> None:
        self._engine: Any = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        self._engine.ctl_set_cpu_model(arm.UC_CPU_ARM64_MAX)
        self._names: list[str] = []
        self._free = _HEAP
        for start, size in ((_STUBS, _PAGE), (_HEAP, _HEAP_BYTES), (_STACK, _STACK_BYTES)):
            self._engine.mem_map(start, size)
        self._image = self._load(file)
        self._engine.mem_write(_STUBS, _RETURN * (len(self._names) + 1))
        self._engine.hook_add(
            unicorn.UC_HOOK_CODE, self._called, begin=_STUBS, end=_STUBS + 4 * len(self._names) - 1
        )
        self._engine.reg_write(arm.UC_ARM64_REG_CPACR_EL1, 3 << 20)  # vector registers in use

    def put(self, array: NDArray[Any]) -> int:
        """The address of a copy."""
        address = self.allocate(array.nbytes)
        self._engine.mem_write(address, np.ascontiguousarray(array).tobytes())
        return address

    def get(self, address: int, shape: tuple[int, ...]) -> Floats:
        memory = bytes(self._engine.mem_read(address, 4 * math.prod(shape)))
        return np.frombuffer(memory, dtype=np.float32).reshape(shape)

    def allocate(self, size: int) -> int:
        """Memory that begins at a cache line."""
        address, self._free = self._free, self._free + -(-size // 64) * 64
        if self._free > _HEAP + _HEAP_BYTES:
            raise MemoryError("the emulated machine's memory is used up")
        return address

    def run(self, symbol: str, arguments: ctypes.Structure) -> None:
        """Call the function of this name with a pointer to the arguments, whose addresses are
        the machine's."""
        end = _STUBS + 4 * len(self._names)
        given = self.allocate(ctypes.sizeof(arguments))
        self._engine.mem_write(given, bytes(arguments))
        self._engine.reg_write(arm.UC_ARM64_REG_SP, _STACK + _STACK_BYTES - 64)
        self._engine.reg_write(arm.UC_ARM64_REG_LR, end)
        self._engine.reg_write(arm.UC_ARM64_REG_X0, given)
        self._engine.emu_start(self._image.symbols[symbol], end)

    def _load(self, file: bytes) -> Image:
        image = link(file, _CODE, self._stub)
        self._engine.mem_map(_CODE, -(-len(image.content) // _PAGE) * _PAGE)
        self._engine.mem_write(_CODE, image.content)
        return image

    def _stub(self, name: str) -> int:
        self._names.append(name)
        return _STUBS + 4 * (len(self._names) - 1)

    def _called(self, engine: Any, address: int, *_: Any) -> None:
        """Do what a function outside the kernel does."""
        name = self._names[(address - _STUBS) // 4]
        values = [engine.reg_read(arm.UC_ARM64_REG_X0 + i) for i in range(3)]
        if name == "memset":
            engine.mem_write(values[0], bytes([values[1] & 255]) * values[2])
        elif name in ("memcpy", "memmove"):
            engine.mem_write(values[0], bytes(engine.mem_read(values[1], values[2])))
        elif name == "NRT_MemInfo_alloc_aligned":
            engine.reg_write(arm.UC_ARM64_REG_X0, self._numba_array(values[0]))
        elif name == "tanhf":
            (x,) = struct.unpack("<f", struct.pack("<I", engine.reg_read(arm.UC_ARM64_REG_S0)))
            bits = struct.unpack("<I", struct.pack("<f", math.tanh(x)))[0]
            engine.reg_write(arm.UC_ARM64_REG_S0, bits)
        elif name == "numba_attempt_nocopy_reshape":
            self._reshape(*(engine.reg_read(arm.UC_ARM64_REG_X0 + i) for i in range(3, 7)))
            engine.reg_write(arm.UC_ARM64_REG_X0, 1)
        elif name not in ("NRT_MemInfo_call_dtor", "NRT_Free", "NRT_decref"):
            engine.emu_stop()
            raise RuntimeError(f"the kernel called {name}")

    def _reshape(self, count: int, sizes: int, strides: int, item: int) -> None:
        """Strides of a contiguous array with so many dimensions of these sizes."""
        shape = struct.unpack(f"<{count}Q", self._engine.mem_read(sizes, 8 * count))
        steps = [item * math.prod(shape[i + 1 :]) for i in range(count)]
        self._engine.mem_write(strides, struct.pack(f"<{count}Q", *steps))

    def _numba_array(self, size: int) -> int:
        """What Numba keeps of memory (`MemInfo`): references, destructor and its argument, the
        memory, its size, allocator."""
        data = self.allocate(size)
        info = self.allocate(48)
        self._engine.mem_write(info, struct.pack("<6Q", 1, 0, 0, data, size, 0))
        return info
