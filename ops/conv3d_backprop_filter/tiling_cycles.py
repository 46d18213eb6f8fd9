"""The cycle model with which CANN's tiling library compares tilings of a weight gradient on dav-c220.

Source, restated: cann-ops ``src/common/op_host/op_tiling/cube`` (``algorithm/calculator/cycle_calculator.cc``,
``util/cube_util.cc``), the published text of the library. Its rates and latencies are what it believes of the hardware;
they rank tilings and say nothing here about time.

M = output channels, N = (depth tap, c1, kh, kw) and K = output pixels, all in fractals: 16 channels, 16 columns, and 16
pixels of 16-bit or 8 of 32-bit operands.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from npu_sim.units import FRACTAL_BYTES, KIB, ceil_div

L1_BYTES = 512 * KIB
_L0C_BYTES = 128 * KIB
_LANES = 16
_SUM_FRACTAL_BYTES = 1024

_L1_BYTES_PER_CYCLE = 256
_L0C_BYTES_PER_CYCLE = 256
_OUT_BYTES_PER_CYCLE = 128
_GM_BYTES_PER_CYCLE = 96
_GM_LATENCY, _MMAD_COST, _LOAD_2D_COST, _LOAD_3D_COST = 300, 20, 20, 42
_OTHER_STRIDE_BYTES_PER_CYCLE = 28
_MOST_LOADS_AHEAD = 60
"""With as many L0 loads of dy for a buffer of L1 the model expects no gain from a second buffer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extents:
    """What the model knows of a call.

    Attributes
    ----------
    batch, dout, ho, wo, hi, wi, kd : int
        Extents of y, of x, of the kernel's depth.
    taps : int
        Taps of one depth plane.
    kernel_height, kernel_width : int
        Dilated.
    stride_h, stride_w : int
        Strides.
    depth_padded : bool
        Whether there is padding in the depth.
    groups, real_g : int
        Groups, and merged groups.
    m, k : int
        Of a merged group, whole.
    cin1 : int
        Input channels of a merged group in blocks of 16.
    k0, item_bytes : int
        Elements of a block of 32 bytes; bytes of an element.
    mmad_cycles : int
        Of one fractal of L0A and one of L0B.
    """

    batch: int
    dout: int
    ho: int
    wo: int
    hi: int
    wi: int
    kd: int
    taps: int
    kernel_height: int
    kernel_width: int
    stride_h: int
    stride_w: int
    depth_padded: bool
    groups: int
    real_g: int
    m: int
    k: int
    cin1: int
    k0: int
    item_bytes: int
    mmad_cycles: int

    @property
    def is_32_bit(self) -> bool:
        """Whether the operands are fp32 or HF32: K then comes in pairs of fractals."""
        return self.item_bytes == 4

    @property
    def cin1_k0(self) -> int:
        """Input channels of a merged group, rounded up to 16, in blocks of 32 bytes."""
        return self.cin1 * _LANES // self.k0


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreShare:
    """What one core gets of a call, and the numbers of cores along each axis; ``n_dim`` includes the depth taps.

    A block of L0B lies within ``n_l0`` columns, one of L1 within ``n_l1``.
    """

    batch: int
    group: int
    m: int
    n: int
    k: int
    n_l0: int
    n_l1: int
    batch_dim: int
    d_dim: int
    group_dim: int
    m_dim: int
    n_dim: int
    k_dim: int


@dataclass(slots=True, kw_only=True)
class Block:
    """The base block, what L1 holds and the buffers: ``m_l1`` and ``n_l1`` in base blocks, the others in fractals."""

    m: int = 1
    n: int = 1
    k: int
    m_l1: int = 1
    n_l1: int = 1
    k_al1: int
    k_bl1: int
    buffers_a: int = 1
    buffers_b: int = 1
    buffers_c: int = 1


def rows_of_x(p: Extents, k: int) -> int:
    """Return the rows of x under ``k`` fractals of pixels."""
    pixels = k * p.k0
    rows = ceil_div(pixels, p.wo) + int(pixels % p.wo != 0 and p.wo % pixels != 0)
    return min((rows - 1) * p.stride_h + p.kernel_height, p.hi)


def channels_of_x(p: Extents, n: int) -> int:
    """Return the blocks of 16 channels of x that ``n`` columns are taken to touch."""
    if p.taps > n:
        return 1 + int(p.taps % n != 0)
    if n % p.taps == 0:
        return n // p.taps
    return ceil_div(n, p.taps) + (1 if 2 * n % p.taps == 0 else 2)


def a_bytes(p: Extents, b: Block) -> int:
    """Return the bytes of dy in L1."""
    return b.m_l1 * b.m * _LANES * b.k_al1 * p.k0 * p.item_bytes * b.buffers_a


def b_bytes(p: Extents, b: Block) -> int:
    """Return the bytes of x in L1."""
    channels = channels_of_x(p, b.n_l1 * b.n) * _LANES
    return rows_of_x(p, b.k_bl1) * p.wi * channels * p.item_bytes * b.buffers_b


def fits(p: Extents, b: Block) -> bool:
    """Return whether L1 holds the block."""
    return a_bytes(p, b) + b_bytes(p, b) <= L1_BYTES


def holds_a(s: CoreShare, b: Block) -> bool:
    """Return whether all of the core's dy stays in L1."""
    return s.group == 1 and _holds_k(s, b.k_al1) and b.m_l1 * b.m == s.m


def holds_b(s: CoreShare, b: Block) -> bool:
    """Return whether all of the core's x stays in L1."""
    return s.group == 1 and _holds_k(s, b.k_bl1) and b.n_l1 * b.n == s.n


def _n_blocks(p: Extents, s: CoreShare, b: Block) -> int:
    """Return how many blocks of x a core takes to L1 along N."""
    taps = gcd(p.kd, s.n_dim)
    channels = ceil_div(p.cin1_k0, s.n_dim // taps) * (p.kd // taps)
    return ceil_div(channels * p.taps, b.n_l1 * b.n)


def double_buffers(p: Extents, s: CoreShare, b: Block) -> None:
    """Give L0C, dy and x a second buffer each, where there is room and use for it."""
    if b.m * b.n * _SUM_FRACTAL_BYTES * 2 <= _L0C_BYTES:
        b.buffers_c = 2
    if not holds_a(s, b) and 2 * a_bytes(p, b) + b_bytes(p, b) <= L1_BYTES:
        b.buffers_a = 2
    if not holds_b(s, b) and a_bytes(p, b) + 2 * b_bytes(p, b) <= L1_BYTES:
        b.buffers_b = 2


def cycles(p: Extents, s: CoreShare, b: Block) -> int:
    """Return the model's time of one core."""
    to_l0a, to_l0b = _l0a_cycles(p, b), _l0b_cycles(p, b)
    multiply = b.m * b.n * b.k * p.mmad_cycles + _MMAD_COST
    step = max(multiply, to_l0a + to_l0b)
    sums = b.m * b.n * _SUM_FRACTAL_BYTES
    store = sums // _L0C_BYTES_PER_CYCLE + sums // _OUT_BYTES_PER_CYCLE
    load_a, load_b = _load_a_cycles(b), _load_b_cycles(p, b)
    m_count = ceil_div(ceil_div(p.m, s.m_dim), b.m_l1 * b.m)
    n_count = _n_blocks(p, s, b)
    if _holds_k(s, b.k_al1) and _holds_k(s, b.k_bl1):
        if min(b.k_al1, b.k_bl1) == b.k:
            inside = b.n_l1 * (to_l0b + b.m_l1 * (max(to_l0a, s.batch * multiply) + store))
        else:
            inside = b.n_l1 * b.m_l1 * (s.batch * (b.k_al1 // b.k) * step + store)
        if holds_a(s, b) and holds_b(s, b):
            return load_a + load_b + s.group * inside
        if holds_a(s, b):
            return load_a + s.group * n_count * _overlap(b.buffers_b == 2, load_b, inside)
        if holds_b(s, b):
            return load_b + s.group * m_count * _overlap(b.buffers_a == 2, load_a, inside)
        return s.group * n_count * (load_b + m_count * _overlap(b.buffers_a == 2, load_a, inside))

    times = max(b.k_al1, b.k_bl1) // min(b.k_al1, b.k_bl1)
    if _holds_k(s, b.k_bl1):
        passing = s.batch * times * _overlap(b.buffers_a == 2, load_a, b.k_al1 // b.k * step) + store
        if holds_b(s, b):
            return load_b + s.group * m_count * b.n_l1 * passing
        return s.group * n_count * (load_b + m_count * b.n_l1 * passing)
    if _holds_k(s, b.k_al1):
        passing = s.batch * times * _overlap(b.buffers_b == 2, load_b, b.k_bl1 // b.k * step) + store
        if holds_a(s, b):
            return load_a + s.group * n_count * b.m_l1 * passing
        return s.group * n_count * m_count * (load_a + b.m_l1 * passing)

    longest = max(b.k_al1, b.k_bl1)
    rounds = s.batch * (ceil_div(p.k, s.k_dim) // longest)
    return s.group * n_count * m_count * (rounds * _streamed_cycles(b, times, step, load_a, load_b) + store)


def _streamed_cycles(b: Block, times: int, step: int, load_a: int, load_b: int) -> int:
    """Return the time of one stretch of the longer operand, of which the shorter one takes ``times``."""
    loads = min(b.k_al1, b.k_bl1) // b.k * b.m
    a_ahead = b.buffers_a == 2 and loads < _MOST_LOADS_AHEAD
    b_ahead = b.buffers_b == 2 and loads < _MOST_LOADS_AHEAD
    outer_ahead = loads * times < _MOST_LOADS_AHEAD
    if b.k_al1 == b.k_bl1:
        return _overlap(a_ahead and b_ahead, load_a + load_b, b.k_al1 // b.k * step)
    if b.k_al1 > b.k_bl1:
        inner = times * _overlap(b_ahead, load_b, b.k_bl1 // b.k * step)
        return _overlap(b.buffers_a == 2 and outer_ahead, load_a, inner)
    inner = times * _overlap(a_ahead, load_a, b.k_al1 // b.k * step)
    return _overlap(b.buffers_b == 2 and outer_ahead, load_b, inner)


def _overlap(ahead: bool, load: int, work: int) -> int:
    return max(load, work) if ahead else load + work


def _holds_k(s: CoreShare, k: int) -> bool:
    return s.batch == 1 and k == s.k


def _l0a_cycles(p: Extents, b: Block) -> int:
    written = b.m * b.k * FRACTAL_BYTES // _L1_BYTES_PER_CYCLE
    if p.is_32_bit:
        return _LOAD_3D_COST + written
    return _LOAD_2D_COST + b.k * FRACTAL_BYTES // _L1_BYTES_PER_CYCLE + written


def _l0b_cycles(p: Extents, b: Block) -> int:
    row_changes = (_LANES - (_LANES % p.wo == 0)) // p.wi
    rate = _OTHER_STRIDE_BYTES_PER_CYCLE
    if p.stride_w == 1:
        rate = FRACTAL_BYTES // (row_changes + 4)
    elif p.stride_w in (2, 4, 8):
        rate = FRACTAL_BYTES // (row_changes + 2 + 2 * p.stride_w)
    return _LOAD_3D_COST + b.k * b.n * FRACTAL_BYTES // rate


def _load_a_cycles(b: Block) -> int:
    return _GM_LATENCY + b.m_l1 * b.m * b.k_al1 * FRACTAL_BYTES // _GM_BYTES_PER_CYCLE


def _load_b_cycles(p: Extents, b: Block) -> int:
    columns = min((p.wo - 1) * p.stride_w + p.kernel_width, p.wi)
    lines = ceil_div(b.n_l1 * b.n, p.taps) * rows_of_x(p, b.k_bl1)
    return _GM_LATENCY + lines * _requests(columns) * FRACTAL_BYTES // _GM_BYTES_PER_CYCLE


def _requests(blocks: int) -> int:
    """Return into how many requests of 16, 8, 4, 3, 2 and 1 blocks a run falls."""
    rest = blocks % 16
    return blocks // 16 + (rest >> 3) + (rest >> 2 & 1) + int(rest & 3 != 0)
