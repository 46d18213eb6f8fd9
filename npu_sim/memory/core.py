"""Buffers of one emulated core.

L1, UB and L0C hold the bits the hardware holds. L0A and L0B hold float32 *carriers* (each fp16, bf16, HF32 and fp32
value is exact in float32): the 512-byte fractal ``f`` owns carriers ``[256 f, 256 f + 256)``, stored **k-major**,
element (m, k) of an L0A fractal at ``256 f + 16 k + m`` and element (k, n) of an L0B fractal at ``256 f + 16 k + n``;
a fractal of 32-bit data has 8 k and uses the first 128 carriers, one of int8 has 32 k and uses the bytes of the first
128 (`isa.l0_bytes`). Inside a fractal the order is ours to choose, because instructions only move whole fractals;
addresses and capacities stay architectural (512 bytes a fractal).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npu_sim.products import CoreSpec

POISON_BYTE = 0xFF
"""Buffers start with this byte: an fp16, bf16 or fp32 NaN, an int32 -1."""


_LINE_BYTES = 64

Buffers = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def aligned(count: int, dtype: npt.DTypeLike) -> np.ndarray:
    """Return an array of undefined contents that starts with a line of the host's caches.

    NumPy starts one anywhere, and a vector of 64 bytes that crosses lines takes twice as long to load.
    """
    size = count * np.dtype(dtype).itemsize
    raw = np.empty(size + _LINE_BYTES, np.uint8)
    first = -raw.ctypes.data % _LINE_BYTES
    return raw[first : first + size].view(dtype)


def memory_bytes(core: CoreSpec) -> int:
    """Return what the arenas of one core take on the host."""
    tables = core.bt_bytes + core.quantisation_bytes + core.index_bytes
    return core.l1_bytes + core.ub_bytes + 2 * (core.l0a_bytes + core.l0b_bytes) + core.l0c_bytes + tables


@dataclass(slots=True, kw_only=True)
class CoreMemory:
    """The arenas of one core, reused core after core by one thread.

    Attributes
    ----------
    l1, ub, bt, fb, idx : uint8[bytes]
        Raw bytes; bias table, Fixpipe buffer and the buffer of indices are empty where a product has none.
    l0a, l0b : float32[bytes / 2]
        Carriers, see the module text.
    l0c : float32[bytes / 4]
        Accumulators, raw float32 bits at architectural addresses.
    """

    l1: npt.NDArray[np.uint8]
    ub: npt.NDArray[np.uint8]
    l0a: npt.NDArray[np.float32]
    l0b: npt.NDArray[np.float32]
    l0c: npt.NDArray[np.float32]
    bt: npt.NDArray[np.uint8]
    fb: npt.NDArray[np.uint8]
    idx: npt.NDArray[np.uint8]

    @classmethod
    def for_core(cls, core: CoreSpec) -> CoreMemory:
        """Allocate the poisoned buffers of ``core``."""
        memory = cls.undefined(core)
        memory.poison()
        return memory

    @classmethod
    def undefined(cls, core: CoreSpec) -> CoreMemory:
        """Allocate the buffers of ``core`` with undefined contents, which take no memory until they are touched."""
        return cls(
            l1=aligned(core.l1_bytes, np.uint8),
            ub=aligned(core.ub_bytes, np.uint8),
            l0a=aligned(core.l0a_bytes // 2, np.float32),
            l0b=aligned(core.l0b_bytes // 2, np.float32),
            l0c=aligned(core.l0c_bytes // 4, np.float32),
            bt=aligned(core.bt_bytes, np.uint8),
            fb=aligned(core.quantisation_bytes, np.uint8),
            idx=aligned(core.index_bytes, np.uint8),
        )

    @property
    def buffers(self) -> Buffers:
        """The arenas, in the order in which `isa.dispatch.run_rows` takes them."""
        return self.l1, self.l0a, self.l0b, self.l0c, self.ub, self.bt, self.fb, self.idx

    def poison(self) -> None:
        """Overwrite everything, so that a read before a write shows."""
        for buffer in self.buffers:
            overwrite(buffer)


def overwrite(buffer: np.ndarray) -> None:
    """Overwrite a buffer of a core with poison."""
    buffer.view(np.uint8).fill(POISON_BYTE)
