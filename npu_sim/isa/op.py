"""Opcodes, pipes, address spaces and modes, and the table of instructions.

Sources: asc-devkit, ``docs/zh/api/SIMD-API`` (matrix computation, data movement, synchronisation, atomics).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


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


class Data(IntEnum):
    """Element types an instruction names."""

    NONE = 0
    FP16 = 1
    BF16 = 2
    FP32 = 3
    INT32 = 4
    INT16 = 5
    INT8 = 6
    UINT8 = 7
    INT64 = 8


class Mode(IntEnum):
    """Bits of ``INSTR.mode``. ATOMIC and HF32 are core state that `isa.issue` copies into the row."""

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
    """Stores to GM add (SetAtomicAdd)."""
    PAD = 128
    """DataCopyPad, GM to UB: what is not data gets the padding value (isPad)."""


class Op(IntEnum):
    """Opcodes."""

    NOP = 0
    SET_FLAG = 1
    WAIT_FLAG = 2
    PIPE_BARRIER = 3
    SET_ATOMIC = 4
    SET_HF32 = 5
    DATA_COPY = 6
    ND2NZ = 7
    LOAD_2D = 8
    LOAD_TRANSPOSE = 9
    LOAD_3D = 10
    LOAD_3D_V1 = 11
    FILL = 12
    MMAD = 13
    FIXPIPE = 14
    L0C_TO_UB = 15
    DUPLICATE = 16
    ADD = 17
    MULS = 18
    CAST = 19
    DATA_COPY_PAD = 20
    SCALAR_COPY = 21
    SUB = 22
    MUL = 23
    DIV = 24
    MAX = 25
    MIN = 26
    ADDS = 27
    REDUCE_REPEAT = 28
    TRANS_DATA_TO_5HD = 29


OP_COUNT = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class OpSpec:
    """What an instruction is called, where it runs and what its row holds.

    Attributes
    ----------
    op : Op
        Opcode.
    api : str
        Name in Ascend C.
    pipes : tuple of Pipe
        Pipes it can run on; which one follows from the spaces (`pipe_of_copy`) or is the only one.
    archs : frozenset of str
        Compiler architectures that have it.
    fields : tuple of str
        Fields of `row.INSTR` that carry operands, in the order of the disassembly. All others are undefined.
    source : str
        Where the instruction is documented.
    """

    op: Op
    api: str
    pipes: tuple[Pipe, ...]
    archs: frozenset[str]
    fields: tuple[str, ...]
    source: str


C100, M200, C220 = "dav-c100", "dav-m200", "dav-c220"
_ALL = frozenset({C100, M200, C220})
_UNIFIED = frozenset({C100, M200})
_SPLIT = frozenset({C220})
_DEVKIT = "asc-devkit docs/zh/api/SIMD-API/"
_EVERY_PIPE = (Pipe.S, Pipe.V, Pipe.M, Pipe.MTE1, Pipe.MTE2, Pipe.MTE3, Pipe.FIX)


def _two_inputs(op: Op, api: str) -> OpSpec:
    return OpSpec(
        op=op,
        api=api,
        pipes=(Pipe.V,),
        archs=_ALL,
        fields=("dst", "src0", "src1", "dtype", "count"),
        source=f"{_DEVKIT}{api}, count style",
    )


OPS: tuple[OpSpec, ...] = (
    OpSpec(
        op=Op.SET_FLAG,
        api="SetFlag",
        pipes=_EVERY_PIPE,
        archs=_ALL,
        fields=("peer", "event"),
        source=_DEVKIT + "synchronisation: runs in the source pipe after its earlier instructions",
    ),
    OpSpec(
        op=Op.WAIT_FLAG,
        api="WaitFlag",
        pipes=_EVERY_PIPE,
        archs=_ALL,
        fields=("peer", "event"),
        source=_DEVKIT + "synchronisation: blocks the destination pipe until the flag is set, and clears it",
    ),
    OpSpec(
        op=Op.PIPE_BARRIER,
        api="PipeBarrier",
        pipes=(*_EVERY_PIPE, Pipe.ALL),
        archs=_ALL,
        fields=(),
        source=_DEVKIT + "synchronisation: later instructions of the pipe wait for earlier ones",
    ),
    OpSpec(
        op=Op.SET_ATOMIC,
        api="SetAtomicAdd/SetAtomicNone",
        pipes=(Pipe.S,),
        archs=_ALL,
        fields=("dtype",),
        source=_DEVKIT + "atomics: core state; dtype NONE ends it",
    ),
    OpSpec(
        op=Op.SET_HF32,
        api="SetHF32Mode",
        pipes=(Pipe.S,),
        archs=_SPLIT,
        fields=("value",),
        source=_DEVKIT + "SetHF32Mode: core state CTRL[46]",
    ),
    OpSpec(
        op=Op.DATA_COPY,
        api="DataCopy",
        pipes=(Pipe.MTE2, Pipe.MTE3, Pipe.MTE1, Pipe.V),
        archs=_ALL,
        fields=("dst_space", "dst", "src0_space", "src0", "block_count", "block_len", "src_gap", "dst_gap", "dtype"),
        source=_DEVKIT + "DataCopy with DataCopyParams; lengths and gaps in 32-byte blocks",
    ),
    OpSpec(
        op=Op.ND2NZ,
        api="DataCopy(Nd2NzParams)",
        pipes=(Pipe.MTE2,),
        archs=_SPLIT,
        fields=(
            "dst_space",
            "dst",
            "src0_space",
            "src0",
            "dtype",
            "nd_num",
            "n_value",
            "d_value",
            "src_nd_stride",
            "src_d_value",
            "dst_c0_stride",
            "dst_n_stride",
            "dst_nd_stride",
        ),
        source=_DEVKIT + "DataCopy on-the-fly ND2NZ",
    ),
    OpSpec(
        op=Op.LOAD_2D,
        api="LoadData(LoadData2DParams)",
        pipes=(Pipe.MTE1, Pipe.MTE2),
        archs=_ALL,
        fields=(
            "dst_space",
            "dst",
            "src0_space",
            "src0",
            "dtype",
            "start_index",
            "repeat",
            "src_stride",
            "dst_gap",
            "mode",
        ),
        source=_DEVKIT + "LoadData 2D; strides in 512-byte fractals",
    ),
    OpSpec(
        op=Op.LOAD_TRANSPOSE,
        api="LoadDataWithTranspose",
        pipes=(Pipe.MTE1,),
        archs=_SPLIT,
        fields=(
            "dst_space",
            "dst",
            "src0_space",
            "src0",
            "dtype",
            "start_index",
            "repeat",
            "src_stride",
            "dst_gap",
            "dst_frac_gap",
        ),
        source=_DEVKIT + "LoadDataWithTranspose; srcStride in squares, gaps in fractals",
    ),
    OpSpec(
        op=Op.LOAD_3D,
        api="LoadData(LoadData3DParamsV2)",
        pipes=(Pipe.MTE1,),
        archs=frozenset({M200, C220}),
        fields=(
            "dst_space",
            "dst",
            "src0_space",
            "src0",
            "dtype",
            "l1_h",
            "l1_w",
            "pad_left",
            "pad_right",
            "pad_top",
            "pad_bottom",
            "stride_w",
            "stride_h",
            "filter_w",
            "filter_h",
            "dilation_w",
            "dilation_h",
            "channel_size",
            "k_ext",
            "m_ext",
            "k_start",
            "m_start",
            "mode",
        ),
        source=_DEVKIT + "LoadData 3D v2 (img2col)",
    ),
    OpSpec(
        op=Op.LOAD_3D_V1,
        api="LoadData(LoadData3DParamsV1)",
        pipes=(Pipe.MTE1,),
        archs=_UNIFIED,
        fields=(
            "dst_space",
            "dst",
            "src0_space",
            "src0",
            "dtype",
            "l1_h",
            "l1_w",
            "pad_left",
            "pad_right",
            "pad_top",
            "pad_bottom",
            "stride_w",
            "stride_h",
            "filter_w",
            "filter_h",
            "dilation_w",
            "dilation_h",
            "c1_index",
            "fetch_filter_w",
            "fetch_filter_h",
            "left_top_w",
            "left_top_h",
            "jump_stride",
            "repeat_mode",
            "repeat",
        ),
        source=_DEVKIT + "LoadData 3D v1 (window walker, one fractal per repeat)",
    ),
    OpSpec(
        op=Op.FILL,
        api="InitConstValue",
        pipes=(Pipe.MTE2, Pipe.MTE1),
        archs=_ALL,
        fields=("dst_space", "dst", "dtype", "repeat", "block_num", "dst_gap", "value"),
        source=_DEVKIT + "InitConstValue: L1 in 32-byte blocks (MTE2), L0A/L0B in 512-byte blocks (MTE1)",
    ),
    OpSpec(
        op=Op.MMAD,
        api="Mmad",
        pipes=(Pipe.M,),
        archs=_ALL,
        fields=("dst", "src0", "src1", "dtype", "m", "n", "k", "mode"),
        source=_DEVKIT + "Mmad: L0C[m, n] (+)= L0A[m, k] L0B[k, n]",
    ),
    OpSpec(
        op=Op.FIXPIPE,
        api="Fixpipe",
        pipes=(Pipe.FIX,),
        archs=_SPLIT,
        fields=(
            "dst_space",
            "dst",
            "src0",
            "dst_dtype",
            "m_size",
            "n_size",
            "src_stride",
            "dst_stride",
            "nd_num",
            "src_nd_stride",
            "dst_nd_stride",
            "mode",
        ),
        source=_DEVKIT + "Fixpipe (FixpipeParamsV220)",
    ),
    OpSpec(
        op=Op.L0C_TO_UB,
        api="DataCopy(L0C to UB)",
        pipes=(Pipe.V,),
        archs=_UNIFIED,
        fields=("dst", "src0", "dst_dtype", "block_count", "block_len", "src_gap", "dst_gap"),
        source=_DEVKIT + "DataCopy with DataCopyEnhancedParams, MATRIX mode; lengths in 16x16 fractals",
    ),
    OpSpec(
        op=Op.DUPLICATE,
        api="Duplicate",
        pipes=(Pipe.V,),
        archs=_ALL,
        fields=("dst", "dtype", "count", "value"),
        source=_DEVKIT + "Duplicate, count style",
    ),
    _two_inputs(Op.ADD, "Add"),
    OpSpec(
        op=Op.MULS,
        api="Muls",
        pipes=(Pipe.V,),
        archs=_ALL,
        fields=("dst", "src0", "dtype", "count", "value"),
        source=_DEVKIT + "Muls, count style",
    ),
    OpSpec(
        op=Op.CAST,
        api="Cast",
        pipes=(Pipe.V,),
        archs=_ALL,
        fields=("dst", "src0", "dtype", "dst_dtype", "round_mode", "count"),
        source=_DEVKIT + "Cast, count style; dtype is the source type",
    ),
    OpSpec(
        op=Op.DATA_COPY_PAD,
        api="DataCopyPad",
        pipes=(Pipe.MTE2, Pipe.MTE3),
        archs=_SPLIT,
        fields=(
            "dst_space",
            "dst",
            "src0_space",
            "src0",
            "block_count",
            "block_len",
            "src_gap",
            "dst_gap",
            "left_padding",
            "right_padding",
            "value",
            "dtype",
            "mode",
        ),
        source=_DEVKIT + "DataCopyPad with DataCopyExtParams; lengths and GM gaps in bytes, UB gaps in 32-byte blocks",
    ),
    OpSpec(
        op=Op.SCALAR_COPY,
        api="GetValue/SetValue",
        pipes=(Pipe.S,),
        archs=_ALL,
        fields=("dst_space", "dst", "src0_space", "src0", "dtype"),
        source=_DEVKIT + "LocalTensor and GlobalTensor GetValue, SetValue: the scalar unit moves one element",
    ),
    _two_inputs(Op.SUB, "Sub"),
    _two_inputs(Op.MUL, "Mul"),
    _two_inputs(Op.DIV, "Div"),
    _two_inputs(Op.MAX, "Max"),
    _two_inputs(Op.MIN, "Min"),
    OpSpec(
        op=Op.ADDS,
        api="Adds",
        pipes=(Pipe.V,),
        archs=_ALL,
        fields=("dst", "src0", "dtype", "count", "value"),
        source=_DEVKIT + "Adds, count style",
    ),
    OpSpec(
        op=Op.REDUCE_REPEAT,
        api="ReduceRepeat",
        pipes=(Pipe.V,),
        archs=_ALL,
        fields=("dst", "src0", "dtype", "mask", "repeat", "dst_rep_stride", "src_blk_stride", "src_rep_stride"),
        source=_DEVKIT + "ReduceRepeat<SUM> (WholeReduceSum), mask of leading elements; order of ReduceDataBlock",
    ),
    OpSpec(
        op=Op.TRANS_DATA_TO_5HD,
        api="TransDataTo5HD",
        pipes=(Pipe.V,),
        archs=_ALL,
        fields=("dst_list", "src_list", "dtype", "repeat", "dst_rep_stride", "src_rep_stride"),
        source=_DEVKIT + "TransDataTo5HD; 16 + 16 block addresses, strides in 32-byte blocks",
    ),
)
"""Every instruction, once. `tests/conformance` runs over this table."""

SPEC_OF_OP: dict[Op, OpSpec] = {spec.op: spec for spec in OPS}
