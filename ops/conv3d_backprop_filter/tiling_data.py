"""The tiling structure of the weight-gradient kernel, under our names and under the vendor's.

Source of the members and their order: ops-nn ``conv/conv3d_backprop_filter_v2/op_kernel/arch22``
(Conv3DBackpropFilterV2TilingData) and asc-devkit ``include/adv_api/conv_backprop/conv3d_bp_filter_tilingdata.h``
(TConv3DBpFilterTiling). Both have the same middle part; the first and last part are the operator's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from functools import partial

from npu_sim.dtypes.formats import DTYPES
from npu_sim.errors import DTypeError
from npu_sim.units import BLOCK_BYTES, ceil_div
from ops.common.cube_operands import COMPUTE_DTYPES
from ops.common.vendor_members import members_of, words_of

ORIGIN_BASIC_BLOCK = "basic block"
ORIGIN_BASE = "base"
ORIGIN_PUBLIC = "public class"
ORIGIN_CLOSED = "closed kernel (inferred from profiles)"
ORIGIN_OURS = "not CANN's tiling (our fallback)"
ORIGIN_PARTS = "not CANN's tiling (our fallback, W in parts)"
ORIGIN_TAPS = "not CANN's tiling (our fallback, tap by tap)"


class Split(IntEnum):
    """Which two axes the cores share; the values are the operator's tiling keys.

    `BASE` shares batch and depth, M, N and K by the dims of ``params``, and has no ``basicBlockTiling``. `K` is no key
    of the published operator: it is the closed kernel before it (`tiling_closed`).
    """

    BASE = 0
    MK = 1
    NK = 2
    MN = 3
    MN_STREAM_K = 4
    K = 5


class StreamK(IntEnum):
    """What the cores that share one tail block split (deterministic mode)."""

    NONE = 0
    BATCH_DOUT = 1
    ROWS = 2


PARAM_MEMBERS = members_of("batchDim:2 groupDim mDim kDim nDim dkDim totalL1Size")
"""The operator's ``params``."""

DW_MEMBERS = members_of(
    """
    batch cin cout cin1G cout1G dout ho wo di hi wi dk hk wk group strideD strideH strideW padFront padBack padUp
    padDown padLeft padRight dilationD dilationH dilationW channelSize al0Pbuffer bl0Pbuffer cl0Pbuffer al1Pbuffer
    bl1Pbuffer baseM baseK baseN m0 k0 n0 stepM stepN stepKa stepKb iterateOrder bl1Bound hf32Flag singleCoreDk
    singleCoreGroup singleCoreCout singleCoreHo singleCoreBatch:2 singleCoreCin:2
    """
)
"""The members of ``dwTiling`` in memory order."""

BLOCK_MEMBERS = members_of("coreBindOrder usedCoreNum singleCoreM singleCoreN singleCoreK:2 streamKType coreStreamK")
"""The members of ``basicBlockTiling`` in memory order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DwTiling:
    """How the A2/A3 kernel cuts one weight gradient.

    M is the output channel, N the axis (tap, c1, kh, kw, c0) with c0 fastest, K the output pixel; `walk_split` says
    in which order a core walks them.

    Attributes
    ----------
    batch .. single_core_cin : int
        The members of ``dwTiling`` (`DW_MEMBERS`). Extents in elements, `cin1_g`, `cout1_g` in blocks of
        `channel_size`, `step_*` in base blocks, `bl1_bound` in elements, `single_core_ho` in rows of y. `group` is the
        number of merged groups.
    batch_dim .. total_l1_size : int
        The operator's ``params``. The basic-block kernels do not read the dims; here they are 1, where the operator
        leaves the remains of another tiling.
    core_bind_order : int
        1: row first, the only order that is produced.
    used_core_num : int
        Cores that get work.
    single_core_m, single_core_n, single_core_k : int
        Block of one core, elements. `single_core_k` is a whole number of rows of y except for the splits of M and N,
        where it is all of K rounded up to C0.
    stream_k_type, core_stream_k : int
        `StreamK`, and the cores that share one tail block.
    tiling_key : int
        `Split`.
    dk_merged : int
        1: N runs over the kernel's depth taps too; 0: one tap at a time.
    block_dim : int
        Cores launched.
    workspace_bytes : int
        Global memory the launch needs besides its tensors.
    origin : str
        One of the ``ORIGIN_*`` labels.
    w_parts : int
        Parts of the columns of y, equal but for one column, that are batch items of their own because whole rows of x
        do not fit L1. Above 1 in tilings of ours only, and ``single_core_k`` is rows of a part.
    tap_by_tap : int
        1: each tap of the window is work of its own, a window of one tap on the pixels that it multiplies, which are
        gathered; ``single_core_k`` is pixels. In tilings of ours only, where image-to-column cannot do it.
    """

    batch: int
    cin: int
    cout: int
    cin1_g: int
    cout1_g: int
    dout: int
    ho: int
    wo: int
    di: int
    hi: int
    wi: int
    dk: int
    hk: int
    wk: int
    group: int
    stride_d: int
    stride_h: int
    stride_w: int
    pad_front: int
    pad_back: int
    pad_up: int
    pad_down: int
    pad_left: int
    pad_right: int
    dilation_d: int
    dilation_h: int
    dilation_w: int
    channel_size: int
    al0_pbuffer: int
    bl0_pbuffer: int
    cl0_pbuffer: int
    al1_pbuffer: int
    bl1_pbuffer: int
    base_m: int
    base_k: int
    base_n: int
    m0: int
    k0: int
    n0: int
    step_m: int
    step_n: int
    step_ka: int
    step_kb: int
    iterate_order: int
    bl1_bound: int
    hf32_flag: int
    single_core_dk: int
    single_core_group: int
    single_core_cout: int
    single_core_ho: int
    single_core_batch: int
    single_core_cin: int
    batch_dim: int
    group_dim: int
    m_dim: int
    k_dim: int
    n_dim: int
    dk_dim: int
    total_l1_size: int
    core_bind_order: int
    used_core_num: int
    single_core_m: int
    single_core_n: int
    single_core_k: int
    stream_k_type: int
    core_stream_k: int
    tiling_key: int
    dk_merged: int
    block_dim: int
    workspace_bytes: int
    origin: str
    w_parts: int = 1
    tap_by_tap: int = 0

    @property
    def element_bytes(self) -> int:
        """Bytes of one operand element."""
        return BLOCK_BYTES // self.channel_size

    @property
    def load_window(self) -> tuple[int, int]:
        """Height and width of the window as image-to-column sees it."""
        return (1, 1) if self.tap_by_tap else (self.hk, self.wk)

    @property
    def khw(self) -> int:
        """Taps of one depth plane that N runs over."""
        return math.prod(self.load_window)

    @property
    def taps_apart(self) -> int:
        """Taps of one depth plane that are work of their own."""
        return self.hk * self.wk // self.khw

    @property
    def load_wo(self) -> int:
        """Columns of y that image-to-column makes at most."""
        return 1 if self.tap_by_tap else ceil_div(self.wo, self.w_parts)

    @property
    def load_pixels(self) -> int:
        """Largest K: output pixels of one part."""
        return self.ho * self.wo if self.tap_by_tap else self.ho * self.load_wo

    @property
    def m_extent(self) -> int:
        """M of a merged group: its output channels, rounded up to 16."""
        return self.cout1_g * self.channel_size

    @property
    def n_extent(self) -> int:
        """N of a merged group, over all depth taps if they are merged."""
        taps = self.dk if self.dk_merged else 1
        return taps * self.cin1_g * self.channel_size * self.khw

    @property
    def block_m(self) -> int:
        """M of the block of one core, whatever the key."""
        return self.single_core_m or self.single_core_cout

    @property
    def block_n(self) -> int:
        """N of the block of one core."""
        return self.single_core_n or self.single_core_cin * self.khw

    @property
    def block_k(self) -> int:
        """K of the block of one core."""
        return self.single_core_k or self.single_core_ho * self.wo

    @property
    def cores(self) -> int:
        """Cores launched."""
        return self.used_core_num or self.block_dim

    @property
    def m_count(self) -> int:
        """Core blocks along M."""
        return ceil_div(self.m_extent, self.block_m)

    @property
    def n_count(self) -> int:
        """Core blocks along N."""
        return ceil_div(self.n_extent, self.block_n)

    @property
    def k_count(self) -> int:
        """Core blocks along K."""
        return ceil_div(self.load_pixels, self.block_k)

    @property
    def dk_count(self) -> int:
        """Depth taps that are work of their own."""
        return 1 if self.dk_merged else self.dk

    @property
    def batch_items(self) -> int:
        """Batch items, output depths and parts of the columns."""
        return self.batch * self.dout * self.w_parts

    @property
    def slot_bytes(self) -> int:
        """Bytes of the workspace slot in which a core that shares a block sums its part."""
        return self.block_m * self.block_n * 4

    @property
    def slots_bytes(self) -> int:
        """Bytes of the slots of all cores; 0 where no cores share a block."""
        return self.slot_bytes * self.cores if self.stream_k_type else 0

    @property
    def tail_cin1(self) -> int:
        """Input channel blocks of the last merged group that exist in x."""
        return ceil_div(self.cin, self.channel_size) - self.cin1_g * (self.group - 1)

    @property
    def tail_cout(self) -> int:
        """Output channels of the last merged group that exist in dy, a multiple of `channel_size`."""
        return ceil_div(self.cout, self.channel_size) * self.channel_size - self.m_extent * (self.group - 1)

    def vendor_members(self) -> dict[str, dict[str, int]]:
        """Return the three parts of the structure under the vendor's names."""
        parts = {"params": PARAM_MEMBERS, "dwTiling": DW_MEMBERS, "basicBlockTiling": BLOCK_MEMBERS}
        return {part: {vendor: getattr(self, ours) for ours, vendor, _ in members} for part, members in parts.items()}

    def words(self) -> tuple[int, ...]:
        """Return the structure as the 70 32-bit words the operator's kernel reads (64-bit members low word first)."""
        return words_of(PARAM_MEMBERS + DW_MEMBERS + BLOCK_MEMBERS, partial(getattr, self))


def element_bytes(compute_dtype: str) -> int:
    """Return the bytes of one operand element.

    Raises
    ------
    DTypeError
        If ``compute_dtype`` is not a compute type of the Cube.
    """
    if compute_dtype not in COMPUTE_DTYPES:
        raise DTypeError(f"compute_dtype must be one of {', '.join(COMPUTE_DTYPES)}, not {compute_dtype!r}")
    return DTYPES[compute_dtype].item_bytes
