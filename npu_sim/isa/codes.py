"""Codes that rows hold besides opcodes: pipes, address spaces, element types and modes; names of architectures.

Sources: asc-devkit, ``docs/zh/api/SIMD-API`` (matrix computation, data movement, synchronisation, atomics).
"""

from __future__ import annotations

from enum import IntEnum

from npu_sim.dtypes.element_types import ElementType


class Pipe(IntEnum):
    """In-order instruction queues of a core. ``ALL`` is only an operand of PipeBarrier."""

    S = 0
    V = 1
    M = 2
    MTE1 = 3
    MTE2 = 4
    MTE3 = 5
    FIX = 6
    ALL = 7


class Space(IntEnum):
    """Address spaces. Addresses are bytes; in L0A and L0B they are architectural bytes, 512 per fractal."""

    NONE = 0
    GM = 1
    L1 = 2
    L0A = 3
    L0B = 4
    L0C = 5
    UB = 6
    BT = 7
    """Bias table."""
    FB = 8
    """Fixpipe buffer, the part that holds quantisation parameters."""
    IDX = 9
    """Buffer beside L0B for the indices of sparse weights; no instruction names an address in it."""


SPACES = len(Space)
ON_CHIP = tuple(space for space in Space if space > Space.GM)

Data = ElementType
"""Element types an instruction names."""


class Mode(IntEnum):
    """Bits of ``INSTR.mode``. `isa.issue` copies core state into the row: ATOMIC and how, HF32, COUNTER, MASK_SET."""

    INIT = 1
    """Mmad: start from zero (cmatrixInitVal)."""
    TRANSPOSE = 2
    """LoadData: transpose each fractal (load2d) resp. write K-major (load3d to L0A)."""
    CHANNEL_SPLIT = 4
    """Fixpipe: float fractals 16x16 leave as two 16x8."""
    NZ2ND = 8
    """Fixpipe: row-major destination."""
    K_ALIGN = 16
    """Mmad fp32: L0A rows hold K rounded up to 16 (kDirectionAlign)."""
    HF32 = 32
    """Mmad fp32: operands are rounded to HF32 first (CTRL[46])."""
    ATOMIC = 64
    """Stores to GM add (SetAtomicAdd), or what the two bits below say."""
    PAD = 128
    """DataCopyPad, GM to UB: what is not data gets the padding value (isPad)."""
    COUNTER = 256
    """Masked vector instructions: the mask is a number of elements (SetMaskCount)."""
    MASK_SET = 512
    """Masked vector instructions: the mask was written since the last one, for which the vector unit runs empty."""
    ATOMIC_MAX = 1024
    """With ATOMIC: stores to GM leave the larger element (SetAtomicMax)."""
    ATOMIC_MIN = 2048
    """With ATOMIC: they leave the smaller one (SetAtomicMin)."""


C100, M200, C220 = "dav-c100", "dav-m200", "dav-c220"
ARCHS = (C100, M200, C220)
"""Compiler architectures."""
