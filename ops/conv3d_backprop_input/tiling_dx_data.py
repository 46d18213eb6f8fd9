"""The tiling structure of the input-gradient kernel of dav-c220, under our names and under the vendor's.

Source of the members and their order: ops-nn ``conv/conv3d_backprop_input_v2/op_kernel/arch22`` (the operator's params,
then TConv3DInputTiling); values as ``tests/ut/op_host/test_conv3d_backprop_input_v2_tiling.cpp`` asserts them.
"""

from __future__ import annotations

from dataclasses import dataclass

from npu_sim.dtypes.formats import DTYPES
from npu_sim.units import ceil_div
from ops.common.geometry import ConvGeometry
from ops.common.vendor_members import members_of, words_of

ORIGIN_BASIC_BLOCK = "basic block"
ORIGIN_BASE = "base template"
ORIGIN_OURS = "not CANN's tiling (our fallback)"

BACK_PAD_MAX = 255
"""Largest pad of an image-to-column load."""

_SPLIT_KEY, _BLOCK_KEY = 256, 512

PARAM_MEMBERS = members_of("batchDim groupDim mDim kDim nDim dDim coreNum:2")
"""The operator's ``params``."""

DX_MEMBERS = members_of(
    """
    batch cin cout cout1 cin1 cout1G cin1G c0 c0Bits dout ho wo di hi wi dk hk wk group strideD strideH strideW
    padFront padBack padUp padDown padLeft padRight backpropPadTail backpropPadUp backpropPadDown backpropPadLeft
    backpropPadRight dilationD dilationH dilationW al0Pbuffer bl0Pbuffer cl0Pbuffer al1Pbuffer bl1Pbuffer
    singleCoreGroup singleCoreCout singleCoreCout1 singleCoreCin1 singleCoreDin singleCoreHo baseM baseK baseN
    baseD baseBatch baseGroup stepM stepN stepKa stepKb stepBatch stepGroup iterateOrder hf32Flag initOutputFlag
    reserved alignment singleCoreBatch:2 singleCoreM:2 singleCoreCin:2
    """
)
"""The members of ``conv3DDxTiling`` in memory order."""


@dataclass(frozen=True, slots=True)
class BackPads:
    """Pads of the stride-1 image-to-column load over the dilated gradient; negative ones crop it.

    Attributes
    ----------
    front, tail, up, down, left, right : int
        As derived from the extents and `DxProblem.dilated_extent`, not clipped.
    """

    front: int
    tail: int
    up: int
    down: int
    left: int
    right: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DxProblem:
    """The matrix product of one input gradient, per merged group: what tilings look at.

    Attributes
    ----------
    geometry : ConvGeometry
        The convolution.
    compute_dtype : str
        What the Cube multiplies.
    dilation : tuple of int
        (d, h, w), 1 on axes where the kernel has one tap (ops-nn op_host/op_tiling/common).
    item : int
        Bytes of an operand.
    c0 : int
        Channel block.
    groups : int
        Merged groups.
    cout1, cin1 : int
        Channel blocks of dy and dx.
    cout1_g, cin1_g : int
        Channel blocks of a merged group.
    """

    geometry: ConvGeometry
    compute_dtype: str
    dilation: tuple[int, int, int]
    item: int
    c0: int
    groups: int
    cout1: int
    cin1: int
    cout1_g: int
    cin1_g: int

    @classmethod
    def of(cls, geometry: ConvGeometry, compute_dtype: str) -> DxProblem:
        """Return the problem of ``geometry``."""
        g = geometry
        c0 = DTYPES[compute_dtype].block_elems
        merged = g.merged_groups(c0)
        cout1, cin1 = ceil_div(g.cout, c0), ceil_div(g.cin, c0)
        single = merged.real_g == 1
        return cls(
            geometry=g,
            compute_dtype=compute_dtype,
            dilation=g.single_tap_dilation,
            item=32 // c0,
            c0=c0,
            groups=merged.real_g,
            cout1=cout1,
            cin1=cin1,
            cout1_g=cout1 if single else merged.cout_g // c0,
            cin1_g=cin1 if single else merged.cin1_g,
        )

    @property
    def khw(self) -> int:
        """Taps of one depth plane."""
        return self.geometry.kh * self.geometry.kw

    @property
    def window(self) -> int:
        """K of one channel block of dy."""
        return self.khw * self.c0

    @property
    def m(self) -> int:
        """Input pixels of a depth plane."""
        return self.geometry.hi * self.geometry.wi

    @property
    def k(self) -> int:
        """Products of one depth tap."""
        return self.cout1_g * self.window

    @property
    def n(self) -> int:
        """Input channels, padded to blocks."""
        return self.cin1_g * self.c0

    @property
    def reach(self) -> tuple[int, int, int]:
        """Extents of the dilated kernel."""
        g, (d, h, w) = self.geometry, self.dilation
        return ((g.kd - 1) * d + 1, (g.kh - 1) * h + 1, (g.kw - 1) * w + 1)

    @property
    def back_pads(self) -> BackPads:
        """See `BackPads`."""
        g, (reach_d, reach_h, reach_w) = self.geometry, self.reach
        front, up, left = reach_d - 1 - g.pad[0], reach_h - 1 - g.pad[2], reach_w - 1 - g.pad[4]
        return BackPads(
            front=front,
            tail=g.di - ((g.do - 1) * g.stride[0] + 1) + reach_d - 1 - front,
            up=up,
            down=g.hi - self.dilated_extent[0] + g.pad[2],
            left=left,
            right=g.wi - self.dilated_extent[1] + g.pad[4],
        )

    @property
    def dilated_extent(self) -> tuple[int, int]:
        """Rows and columns of the dilated gradient, ``(out - 1) * stride + 1``: zeros between the rows of dy.

        ``out * stride`` where the pad behind them would be above `BACK_PAD_MAX`: the published formula of that case,
        ``in - out * stride + pad``, counts zeros behind the last row, too.
        """
        g = self.geometry
        rows, columns = (
            (out - 1) * step + 1 if size - (out - 1) * step - 1 + pad <= BACK_PAD_MAX else out * step
            for size, out, step, pad in (
                (g.hi, g.ho, g.stride[1], g.pad[2]),
                (g.wi, g.wo, g.stride[2], g.pad[4]),
            )
        )
        return rows, columns

    def rows(self, pixels: int) -> int:
        """Return the rows of the dilated gradient that a block of ``pixels`` keeps in L1."""
        return min(block_rows(pixels, self.geometry.wi) - 1 + self.reach[1], self.dilated_extent[0])

    def a1_block_bytes(self, pixels: int) -> int:
        """Return the L1 bytes of one channel block of dy under a block of ``pixels``."""
        return self.rows(pixels) * self.geometry.wo * self.geometry.stride[2] * 32

    @property
    def needs_clearing(self) -> bool:
        """Whether the published tiling clears dx first: some rows or planes are under no window."""
        g, (reach_d, reach_h, _) = self.geometry, self.reach
        return (
            (g.di + g.pad[0] + g.pad[1] - reach_d) % g.stride[0] > g.pad[1]
            or (g.hi + g.pad[2] + g.pad[3] - reach_h) % g.stride[1] > g.pad[3]
            or g.stride[1] > g.kh
            or self.dilation[0] > 1
        )


def block_rows(pixels: int, width: int) -> int:
    """Return the rows that a block of ``pixels`` can touch where blocks follow each other from the start of a row."""
    if pixels % width == 0:
        return pixels // width
    if pixels > width:
        return pixels // width + 2
    return 1 if width % pixels == 0 else 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DxTiling:
    """How the A2/A3 kernel cuts one input gradient: the 78 words of the structure, and what goes with them.

    Attributes
    ----------
    problem : DxProblem
        Where the members that describe the shape come from.
    base_m, base_n, base_k : int
        Base block, elements. M is the input pixel, N the input channel, K (c1 of dy, reversed window, c0).
    base_d : int
        Planes of a base block by the structure; the kernel has one.
    step_ka, step_kb : int
        Base K of one L1 load of dy resp. the weight.
    al1_pbuffer, bl1_pbuffer, cl0_pbuffer : int
        Buffers in L1 and L0C (L0A and L0B always have two).
    single_core_m, single_core_cin : int
        Block of one core, elements; M in whole rows.
    single_core_din, single_core_batch, single_core_group : int
        Planes, batch items and merged groups of one core.
    batch_dim, m_dim, n_dim, d_dim : int
        Cores along each axis (base template; 1 otherwise).
    core_num : int
        Cores launched.
    is_block_driver : bool
        True: cores take contiguous ranges of (M block, batch x depth, N block); False: each core one block of the grid.
    splits_kernel : int
        1: the kernel is split by the stride (`tiling_dx_strided`).
    origin : str
        One of the ``ORIGIN_*`` labels.
    """

    problem: DxProblem
    base_m: int
    base_n: int
    base_k: int
    base_d: int = 1
    step_ka: int
    step_kb: int
    al1_pbuffer: int
    bl1_pbuffer: int
    cl0_pbuffer: int = 1
    single_core_m: int
    single_core_cin: int
    single_core_din: int = 1
    single_core_batch: int = 1
    single_core_group: int = 1
    batch_dim: int = 1
    m_dim: int = 1
    n_dim: int = 1
    d_dim: int = 1
    core_num: int
    is_block_driver: bool
    splits_kernel: int = 0
    origin: str

    @property
    def tiling_key(self) -> int:
        """Which compiled kernel: how baseK relates to the window, whether that is split, and the basic-block driver."""
        if self.problem.khw == 1:
            condition = 2
        else:
            condition = int(self.base_k // self.problem.c0 >= self.problem.khw)
        condition += _SPLIT_KEY * self.splits_kernel
        return condition + (_BLOCK_KEY if self.is_block_driver and self.origin != ORIGIN_OURS else 0)

    @property
    def m_count(self) -> int:
        """Core blocks along M."""
        return ceil_div(self.problem.m, self.single_core_m)

    @property
    def n_count(self) -> int:
        """Core blocks along N, per merged group."""
        return ceil_div(self.problem.n, self.single_core_cin)

    def members(self) -> dict[str, int]:
        """Return every member of the structure under our names."""
        p, g = self.problem, self.problem.geometry
        pads = p.back_pads
        tail, down, right = (
            value if 0 <= value <= BACK_PAD_MAX else extent - out * step + pad
            for value, extent, out, step, pad in (
                (pads.tail, g.di, g.do, g.stride[0], g.pad[0]),
                (pads.down, g.hi, g.ho, g.stride[1], g.pad[2]),
                (pads.right, g.wi, g.wo, g.stride[2], g.pad[4]),
            )
        )
        shape = {
            "batch": g.n, "cin": g.cin, "cout": g.cout, "cout1": p.cout1, "cin1": p.cin1, "cout1_g": p.cout1_g,
            "cin1_g": p.cin1_g, "c0": p.c0, "c0_bits": p.c0.bit_length() - 1, "dout": g.do, "ho": g.ho, "wo": g.wo,
            "di": g.di, "hi": g.hi, "wi": g.wi, "dk": g.kd, "hk": g.kh, "wk": g.kw, "group": p.groups,
            "stride_d": g.stride[0], "stride_h": g.stride[1], "stride_w": g.stride[2], "pad_front": g.pad[0],
            "pad_back": g.pad[1], "pad_up": g.pad[2], "pad_down": g.pad[3], "pad_left": g.pad[4],
            "pad_right": g.pad[5], "backprop_pad_tail": tail, "backprop_pad_up": pads.up, "backprop_pad_down": down,
            "backprop_pad_left": pads.left, "backprop_pad_right": right, "dilation_d": p.dilation[0],
            "dilation_h": p.dilation[1], "dilation_w": p.dilation[2],
        }  # fmt: skip
        fixed = {
            "group_dim": 1, "k_dim": 1, "al0_pbuffer": 2, "bl0_pbuffer": 2, "single_core_cout": p.cout1_g * p.c0,
            "single_core_cout1": p.cout1_g, "single_core_cin1": self.single_core_cin // p.c0, "single_core_ho": 1,
            "base_batch": 1, "base_group": 1, "step_m": 1, "step_n": 1, "step_batch": 1, "step_group": 1,
            "iterate_order": 1, "hf32_flag": int(p.compute_dtype == "hf32"), "init_output_flag": int(p.needs_clearing),
            "reserved": 0, "alignment": 0,
        }  # fmt: skip
        known = shape | fixed
        names = [name for name, _, _ in PARAM_MEMBERS + DX_MEMBERS]
        return {name: known[name] if name in known else int(getattr(self, name)) for name in names}

    def words(self) -> tuple[int, ...]:
        """Return the structure as the 78 32-bit words the operator's kernel reads (64-bit members low word first)."""
        return words_of(PARAM_MEMBERS + DX_MEMBERS, self.members().__getitem__)
