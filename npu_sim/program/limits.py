"""What an instruction may look like on an architecture, as tables: ranges of fields, data paths, types, conversions.

Sources: asc-devkit ``docs/zh/api/SIMD-API`` (the parameter tables of DataCopy, LoadData, InitConstValue, Mmad, Fixpipe,
Cast and SetAtomicAdd; the general constraints for address alignment), and the parameter checks of TIK in CANN 8.1
(``tbe/tik``) for limits the pages leave out.
"""

from __future__ import annotations

from npu_sim.dtypes.formats import RoundMode
from npu_sim.isa.op import C100, C220, M200, Data, Mode, Op, Space
from npu_sim.units import BLOCK_BYTES, FRACTAL_BYTES

ADDRESS_ALIGNMENT_BYTES: dict[Space, int] = {
    Space.GM: 1,
    Space.L1: BLOCK_BYTES,
    Space.UB: BLOCK_BYTES,
    Space.L0A: FRACTAL_BYTES,
    Space.L0B: FRACTAL_BYTES,
    Space.L0C: 64,
}
"""Alignment of start addresses (asc-devkit, general constraints)."""
MMAD_DESTINATION_ALIGNMENT_BYTES = 1024
"""Alignment of an Mmad destination (asc-devkit, Mmad page)."""

_BYTE, _WORD, _SHORT = 255, 65535, 32767

Range = tuple[str, int, int]
"""Field, lowest and highest value."""

_WINDOW: tuple[Range, ...] = (
    ("pad_left", 0, _BYTE),
    ("pad_right", 0, _BYTE),
    ("pad_top", 0, _BYTE),
    ("pad_bottom", 0, _BYTE),
    ("stride_w", 1, 63),
    ("stride_h", 1, 63),
    ("dilation_w", 1, _BYTE),
    ("dilation_h", 1, _BYTE),
)
RANGES: dict[Op, tuple[Range, ...]] = {
    Op.SET_HF32: (("value", 0, 1),),
    Op.DATA_COPY: (("block_count", 0, 4095), ("block_len", 0, _WORD), ("src_gap", 0, _WORD), ("dst_gap", 0, _WORD)),
    Op.ND2NZ: (
        ("nd_num", 0, 4095),
        ("n_value", 0, 16384),
        ("d_value", 0, _WORD),
        ("src_nd_stride", 0, _WORD),
        ("src_d_value", 1, _WORD),
        ("dst_c0_stride", 1, 16384),
        ("dst_n_stride", 1, 16384),
        ("dst_nd_stride", 0, _WORD),
    ),
    Op.LOAD_2D: (("start_index", 0, _WORD), ("repeat", 0, _BYTE), ("src_stride", 0, _WORD), ("dst_gap", 0, _WORD)),
    Op.LOAD_TRANSPOSE: (
        ("start_index", 0, _WORD),
        ("repeat", 0, _BYTE),
        ("src_stride", 0, _WORD),
        ("dst_gap", 0, _WORD),
        ("dst_frac_gap", 0, _WORD),
    ),
    Op.LOAD_3D: (
        *_WINDOW,
        ("l1_h", 0, _SHORT),
        ("l1_w", 0, _SHORT),
        ("filter_w", 0, 511),
        ("filter_h", 0, 511),
        ("channel_size", 0, _WORD),
        ("k_ext", 0, _WORD),
        ("m_ext", 0, _WORD),
        ("k_start", 0, _WORD),
        ("m_start", 0, _SHORT),
    ),
    Op.LOAD_3D_V1: (
        *_WINDOW,
        ("l1_h", 1, _SHORT),
        ("l1_w", 1, _SHORT),
        ("filter_w", 1, _BYTE),
        ("filter_h", 1, _BYTE),
        ("c1_index", 0, 4095),
        ("fetch_filter_w", 0, 254),
        ("fetch_filter_h", 0, 254),
        ("left_top_w", -_BYTE, _SHORT),
        ("left_top_h", -_BYTE, _SHORT),
        ("jump_stride", 1, 127),
        ("repeat_mode", 0, 1),
        ("repeat", 1, _BYTE),
    ),
    Op.FILL: (("repeat", 0, _SHORT), ("block_num", 0, _SHORT), ("dst_gap", 0, _SHORT)),
    Op.MMAD: (("m", 0, 4095), ("n", 0, 4095), ("k", 0, 4095)),
    Op.FIXPIPE: (("m_size", 0, _WORD), ("n_size", 0, 4095), ("src_stride", 0, _WORD), ("dst_stride", 1, 2**31 - 1)),
    Op.L0C_TO_UB: (("block_count", 0, 4095), ("block_len", 0, _WORD), ("src_gap", 0, _WORD), ("dst_gap", 0, _WORD)),
    **dict.fromkeys(
        (
            Op.DUPLICATE,
            Op.ADD,
            Op.SUB,
            Op.MUL,
            Op.DIV,
            Op.MAX,
            Op.MIN,
            Op.MULS,
            Op.ADDS,
            Op.CAST,
        ),
        (("count", 0, 2**31 - 1),),
    ),
    Op.DATA_COPY_PAD: (
        ("block_count", 1, 4095),
        ("block_len", 0, 2097151),
        ("src_gap", 0, 2**31 - 1),
        ("dst_gap", 0, 2**31 - 1),
        ("left_padding", 0, BLOCK_BYTES),
        ("right_padding", 0, BLOCK_BYTES),
    ),
    Op.REDUCE_REPEAT: (
        ("mask", 0, 128),
        ("repeat", 0, _BYTE),
        ("dst_rep_stride", 0, _WORD),
        ("src_blk_stride", 0, _WORD),
        ("src_rep_stride", 0, _WORD),
    ),
    Op.TRANS_DATA_TO_5HD: (
        ("repeat", 0, _BYTE),
        ("dst_rep_stride", 0, _WORD),
        ("src_rep_stride", 0, _WORD),
    ),
}
"""Ranges that hold on every architecture."""

FILL_RANGES: dict[str, tuple[Range, ...]] = {
    C100: (("repeat", 0, _BYTE), ("block_num", 1, 1), ("dst_gap", 0, 0)),
    M200: (("repeat", 0, _BYTE), ("block_num", 1, 1), ("dst_gap", 0, 0)),
    C220: (),
}
ND_RANGES: tuple[Range, ...] = (
    ("m_size", 0, 8192),
    ("nd_num", 0, _WORD),
    ("src_nd_stride", 0, 512),
    ("dst_nd_stride", 0, _WORD),
)

PAD_UB_GAP_BLOCKS = _WORD
"""Longest gap on the UB side of a DataCopyPad."""

_UNIFIED_COPIES = frozenset(
    {
        (Space.L1, Space.GM),
        (Space.UB, Space.GM),
        (Space.GM, Space.UB),
        (Space.UB, Space.L1),
        (Space.L1, Space.UB),
        (Space.UB, Space.UB),
    }
)
_TO_L0 = frozenset({(Space.L0A, Space.L1), (Space.L0B, Space.L1)})
_LOAD_2D_PATHS = _TO_L0 | {(Space.L1, Space.GM), (Space.L0A, Space.GM), (Space.L0B, Space.GM)}
_SPLIT_COPIES = (_UNIFIED_COPIES - {(Space.UB, Space.L1), (Space.L1, Space.UB)}) | {(Space.GM, Space.L1)}

PATHS: dict[Op, dict[str, frozenset[tuple[Space, Space]]]] = {
    Op.DATA_COPY: {C100: _UNIFIED_COPIES, M200: _UNIFIED_COPIES, C220: _SPLIT_COPIES},
    Op.ND2NZ: {C220: frozenset({(Space.L1, Space.GM)})},
    Op.LOAD_2D: {C100: _LOAD_2D_PATHS, M200: _LOAD_2D_PATHS, C220: _LOAD_2D_PATHS},
    Op.LOAD_TRANSPOSE: {C220: _TO_L0},
    Op.LOAD_3D: {M200: _TO_L0, C220: _TO_L0},
    Op.LOAD_3D_V1: {C100: _TO_L0, M200: _TO_L0},
    Op.DATA_COPY_PAD: {C220: frozenset({(Space.UB, Space.GM), (Space.GM, Space.UB)})},
    Op.SCALAR_COPY: dict.fromkeys(
        (C100, M200, C220), frozenset({(Space.UB, Space.UB), (Space.UB, Space.GM), (Space.GM, Space.UB)})
    ),
}
"""(destination, source) pairs by opcode and architecture."""

FILL_SPACES: dict[str, frozenset[Space]] = {
    C100: frozenset({Space.L0A, Space.L0B}),
    M200: frozenset({Space.L1, Space.L0A, Space.L0B}),
    C220: frozenset({Space.L1, Space.L0A, Space.L0B}),
}

_HALF = frozenset({Data.FP16})
_B8 = frozenset({Data.INT8, Data.UINT8})
_UNIFIED_B16 = frozenset({Data.FP16, Data.INT16})
B16 = frozenset({Data.FP16, Data.BF16, Data.INT16})
_B32 = frozenset({Data.FP32, Data.INT32})
_ANY = frozenset(Data)
_FLOATS = frozenset({Data.FP16, Data.FP32})
_WITH_SCALAR = {C100: _FLOATS, M200: _UNIFIED_B16 | _B32, C220: _UNIFIED_B16 | _B32}
_ARITHMETIC = {C100: _HALF | _B32, M200: _UNIFIED_B16 | _B32, C220: _UNIFIED_B16 | _B32}

DTYPES: dict[Op, dict[str, frozenset[Data]]] = {
    Op.SET_ATOMIC: {
        C100: frozenset({Data.NONE, Data.FP32}),
        M200: frozenset({Data.NONE, Data.INT16, Data.FP16, Data.FP32}),
        C220: frozenset({Data.NONE, Data.INT8, Data.INT16, Data.FP16, Data.BF16, Data.INT32, Data.FP32}),
    },
    Op.DATA_COPY: {C100: _ANY, M200: _ANY, C220: _ANY},
    Op.ND2NZ: {C220: _B8 | B16 | _B32},
    Op.LOAD_2D: {C100: _B8 | _UNIFIED_B16, M200: _B8 | _UNIFIED_B16, C220: _B8 | B16 | _B32},
    Op.LOAD_TRANSPOSE: {C220: _B8 | B16 | _B32},
    Op.LOAD_3D: {M200: _B8 | _HALF, C220: _B8 | B16 | _B32},
    Op.LOAD_3D_V1: {C100: _B8 | _HALF, M200: _B8 | _HALF},
    Op.FILL: {C100: _HALF, M200: _UNIFIED_B16, C220: B16 | _B32},
    Op.MMAD: {
        C100: _HALF | _B8,
        M200: _HALF | _B8,
        C220: frozenset({Data.FP16, Data.BF16, Data.FP32, Data.INT8}),
    },
    Op.DUPLICATE: {C100: _UNIFIED_B16 | _B32, M200: _UNIFIED_B16 | _B32, C220: B16 | _B32},
    **{op: _ARITHMETIC for op in (Op.ADD, Op.SUB, Op.MUL, Op.MAX, Op.MIN)},
    **{op: _WITH_SCALAR for op in (Op.MULS, Op.ADDS)},
    # dav-c100: the ReduceRepeat page lists half only, the platform file of the chip float as well.
    **{op: dict.fromkeys((C100, M200, C220), _FLOATS) for op in (Op.DIV, Op.REDUCE_REPEAT)},
    # The 8-bit form, which moves halves of blocks, has no semantics here.
    Op.TRANS_DATA_TO_5HD: {C100: _UNIFIED_B16, M200: _UNIFIED_B16 | _B32, C220: _UNIFIED_B16 | _B32},
    Op.DATA_COPY_PAD: {C220: _B8 | B16 | _B32},
    Op.SCALAR_COPY: dict.fromkeys((C100, M200, C220), _ANY - {Data.NONE}),
}
"""Values of ``dtype`` by opcode and architecture; Cast has a table of its own."""

DST_DTYPES: dict[Op, frozenset[Data]] = {
    Op.FIXPIPE: frozenset({Data.FP32, Data.FP16, Data.BF16, Data.INT32, Data.INT8, Data.UINT8}),
    Op.L0C_TO_UB: frozenset({Data.FP32, Data.FP16, Data.INT32}),
}

_NONE_ONLY = frozenset({RoundMode.NONE})
_DIRECTED = frozenset({RoundMode.FLOOR, RoundMode.CEIL, RoundMode.ROUND, RoundMode.TRUNC})
_NEAREST = _DIRECTED | {RoundMode.RINT}
_ALL_MODES = _NEAREST | {RoundMode.NONE, RoundMode.ODD}
_Conversions = dict[tuple[Data, Data], frozenset[RoundMode]]
_CASTS_C100: _Conversions = {
    (Data.FP16, Data.FP32): _NONE_ONLY,
    (Data.FP32, Data.FP16): _NONE_ONLY | {RoundMode.ODD},
    (Data.FP32, Data.INT32): _NEAREST,
    (Data.FP16, Data.INT32): _NEAREST,
    (Data.FP16, Data.INT8): _NONE_ONLY | _DIRECTED,
    (Data.FP16, Data.UINT8): _NONE_ONLY | _DIRECTED,
    (Data.INT8, Data.FP16): _NONE_ONLY,
    (Data.UINT8, Data.FP16): _NONE_ONLY,
    (Data.INT32, Data.FP32): _NONE_ONLY,
}
_CASTS_C220: _Conversions = {
    **_CASTS_C100,
    (Data.FP32, Data.FP16): _ALL_MODES,
    (Data.FP32, Data.BF16): _NEAREST,
    (Data.BF16, Data.FP32): _NONE_ONLY,
    (Data.FP32, Data.FP32): _NEAREST,
    (Data.FP16, Data.INT8): _NONE_ONLY | _NEAREST,
    (Data.FP16, Data.UINT8): _NONE_ONLY | _NEAREST,
    (Data.FP16, Data.INT16): _NEAREST,
    (Data.INT16, Data.FP16): _NONE_ONLY | _NEAREST,
    (Data.INT32, Data.FP32): _NONE_ONLY | _NEAREST,
}
CASTS: dict[str, _Conversions] = {
    C100: _CASTS_C100,
    M200: {
        **_CASTS_C100,
        (Data.FP16, Data.INT16): frozenset({RoundMode.RINT}),
        (Data.INT16, Data.FP16): _NONE_ONLY,
    },
    C220: _CASTS_C220,
}
"""Rounding modes of Cast by architecture and (source, destination) type; only float formats and small integers."""

MODE_BITS: dict[Op, dict[str, int]] = {
    Op.LOAD_2D: dict.fromkeys((C100, M200, C220), int(Mode.TRANSPOSE)),
    Op.LOAD_3D: dict.fromkeys((M200, C220), int(Mode.TRANSPOSE)),
    Op.MMAD: {C100: int(Mode.INIT), M200: int(Mode.INIT), C220: Mode.INIT | Mode.K_ALIGN | Mode.HF32},
    Op.FIXPIPE: {C220: Mode.CHANNEL_SPLIT | Mode.NZ2ND | Mode.ATOMIC},
    Op.DATA_COPY: dict.fromkeys((C100, M200, C220), int(Mode.ATOMIC)),
    Op.DATA_COPY_PAD: {C220: Mode.PAD | Mode.ATOMIC},
}
